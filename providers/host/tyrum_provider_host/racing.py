"""Doing work until something else happens first."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(Exception):
    """The signal came before the work was done; the work was cancelled and has ended."""


async def unless(work: Coroutine[Any, Any, T], *signals: Coroutine[Any, Any, object]) -> T:
    """Return what `work` returns, unless one of `signals` completes first.

    Nothing survives the call: whatever has not completed is cancelled and awaited. When work and signal
    complete together, the work counts.

    Raises:
        Interrupted: a signal completed first.
    """
    job = asyncio.ensure_future(work)
    waits = [asyncio.ensure_future(signal) for signal in signals]
    try:
        await asyncio.wait((job, *waits), return_when=asyncio.FIRST_COMPLETED)
        if job.done():
            return job.result()
        raise Interrupted
    finally:
        open_ones = [task for task in (job, *waits) if not task.done()]
        for task in open_ones:
            task.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)
