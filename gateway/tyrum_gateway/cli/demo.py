"""`tyrum demo`: a governed conversation with real processes, shown and verified.

Invariant: it drives the public API as any client does, in a state directory of its own that is gone
afterwards; a section that does not show what it claims ends the demonstration with a failure.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from pathlib import Path

import typer

from tyrum_gateway.cli.options import sub_app

app = sub_app("Show a governed conversation, end to end.")


@app.command()
def demo() -> None:
    """Start a gateway, talk to it, approve, deny, kill it and read the transcript back; takes seconds."""
    for name in [name for name in os.environ if name.startswith("TYRUM_")]:
        del os.environ[name]  # the operator's own gateway has no part in this
    directory = Path(tempfile.mkdtemp(prefix="tyrum-demo-"))
    try:
        asyncio.run(_until_terminated(directory))
    except asyncio.CancelledError:
        raise typer.Exit(128 + signal.SIGTERM) from None
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _until_terminated(directory: Path) -> None:
    """Tell the story; ended by SIGTERM it still takes its gateway along."""
    from tyrum_gateway.cli.demo_story import tell  # noqa: PLC0415 - imports grpc

    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await tell(directory)
