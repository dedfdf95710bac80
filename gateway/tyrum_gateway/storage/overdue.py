"""A common bound on many waits, by one timer: a timer of its own for each costs as much as the wait.

Invariant: no future that was added stays without an answer for longer than its time.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any


class Overdue:
    """Ends waits that take too long; used on the loop's thread."""

    def __init__(self, seconds: float, error: Callable[[], Exception]) -> None:
        """Prepare.

        Args:
            seconds: How long each future may wait, > 0.
            error: Makes what a future gets whose time is over.
        """
        self._seconds = seconds
        self._error = error
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, future: asyncio.Future[Any]) -> None:
        """Bound the wait for a future from now on."""
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()
        self._waiting.append((self._loop.time() + self._seconds, future))
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._waiting:
            due, future = self._waiting[0]
            if not future.done():
                if due > now:
                    self._timer = self._loop.call_at(due, self._look)
                    return
                future.set_exception(self._error())
            self._waiting.popleft()
