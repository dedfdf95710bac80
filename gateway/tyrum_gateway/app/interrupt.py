"""Interruptible work: one awaited piece of a turn that CancelTurn may end without ending the runner."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tyrum_gateway.domain.ids import TurnId

T = TypeVar("T")


class Interrupted(Exception):
    """The work was ended because its turn was settled by somebody else."""


class Interrupts:
    """The work in progress, by turn."""

    def __init__(self) -> None:
        self._tasks: dict[TurnId, asyncio.Task[Any]] = {}

    async def run(self, turn_id: TurnId, work: Coroutine[Any, Any, T]) -> T:
        """Await work so that `interrupt` can end it.

        Raises:
            Interrupted: The turn was interrupted; the work has been cancelled and has ended.
        """
        task = asyncio.ensure_future(work)
        self._tasks[turn_id] = task
        try:
            return await task
        except asyncio.CancelledError:
            runner = asyncio.current_task()
            if runner is not None and runner.cancelling():
                raise
            raise Interrupted from None
        finally:
            del self._tasks[turn_id]
            if not task.done():  # the runner itself was cancelled: take the work along
                task.cancel()
                await asyncio.wait([task])

    def interrupt(self, turn_id: TurnId) -> None:
        """End the work of a turn, if it has any."""
        task = self._tasks.get(turn_id)
        if task is not None:
            task.cancel()
