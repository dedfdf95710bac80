"""Interruptible work: one awaited piece of a turn that a settlement or a deadline ends, whatever it does.

Invariant: whoever awaits work here goes on within `GRACE_SECONDS` after an interrupt, a deadline or its own
cancellation. Work that does not end by then is left to itself: its turn is settled without it, and what it
returns counts for nothing.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import structlog

from tyrum_gateway.domain.ids import TurnId

log = structlog.get_logger(__name__)

T = TypeVar("T")

GRACE_SECONDS = 2.0
"""How long work gets to end after it was cancelled."""


class Interrupted(Exception):
    """The work was ended because its turn was settled by somebody else."""


class Interrupts:
    """The turns in work, and whether they have been interrupted."""

    def __init__(self) -> None:
        self._turns: dict[TurnId, asyncio.Future[None]] = {}
        self._ending: set[asyncio.Task[Any]] = set()

    @contextmanager
    def working(self, turn_id: TurnId) -> Iterator[None]:
        """Take note of interrupts of a turn, from now on and between its pieces of work too."""
        self._turns[turn_id] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._turns[turn_id]

    async def run(self, turn_id: TurnId, work: Coroutine[Any, Any, T], *, seconds: float | None = None) -> T:
        """Await a piece of work of a turn that is `working`.

        Args:
            turn_id: The turn.
            work: Begun at once, unless the turn has been interrupted.
            seconds: Deadline of the work; None when the turn's own deadline suffices.

        Raises:
            Interrupted: The turn was interrupted, or the work cancelled itself.
            TimeoutError: The deadline is over.
        """
        interrupted = self._turns[turn_id]
        if interrupted.done():
            work.close()
            raise Interrupted
        task = asyncio.ensure_future(work)
        try:
            either: set[asyncio.Future[Any]] = {task, interrupted}
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            _retrieve(task)  # it may have ended in this very moment
            raise
        finally:
            in_time = task.done()
            if not in_time:
                await self._end(turn_id, task)
        if not in_time and not interrupted.done():
            raise TimeoutError  # also when the work ended by its cancellation: that is ours
        if interrupted.done() or task.cancelled():
            _retrieve(task)
            raise Interrupted
        return task.result()

    def interrupt(self, turn_id: TurnId) -> None:
        """End the work of a turn, if it is in work."""
        interrupted = self._turns.get(turn_id)
        if interrupted is not None and not interrupted.done():
            interrupted.set_result(None)

    async def _end(self, turn_id: TurnId, task: asyncio.Task[Any]) -> None:
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait({task}, timeout=GRACE_SECONDS)
        if not task.done():
            log.warning("work_abandoned", turn=turn_id)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._ending.discard(task)
        _retrieve(task)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Take note of an error that nobody waits for any more."""
    if task.done() and not task.cancelled() and (error := task.exception()) is not None:
        log.info("interrupted_work_failed", error=type(error).__name__)
