"""The end of the process: what ignores its cancellation does not hold it up.

Invariant: this comes last, when the store is closed and providers are gone; there is nothing left to lose.
"""

import asyncio
import os
import sys

import structlog

log = structlog.get_logger(__name__)

PATIENCE_SECONDS = 2.0
"""How long tasks that somebody has abandoned get to end."""


async def leave() -> None:
    """Cancel what still runs, and end the process with 0 if it does not end.

    Without this the event loop would wait for it, for as long as it likes.
    """
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left and (await asyncio.wait(left, timeout=PATIENCE_SECONDS))[1]:
        log.warning("left_behind", tasks=sum(not task.done() for task in left))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
