"""`tyrum demo`: a governed conversation with real processes, shown and verified.

Invariant: it drives the public API as any client does, in a state directory of its own that is gone
afterwards; a section that does not show what it claims ends the demonstration with a failure.
"""

import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tyrum_gateway.cli.options import sub_app

app = sub_app("Show a governed conversation, end to end.")


@app.command()
def demo() -> None:
    """Start a gateway, talk to it, approve, deny, kill it and read the transcript back; takes seconds."""
    from tyrum_gateway.cli.demo_story import tell  # noqa: PLC0415 - imports grpc

    # Ended by SIGTERM it still takes its gateway along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    directory = Path(tempfile.mkdtemp(prefix="tyrum-demo-"))
    try:
        asyncio.run(tell(directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
