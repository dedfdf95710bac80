"""Says on a terminal that something takes its time, and for how long.

Invariant: the line is gone before anything is written, and nothing of it stays; without a terminal there is
none.
"""

import asyncio
import sys
from typing import TYPE_CHECKING

from tyrum_gateway.cli.progress import bar, draws

if TYPE_CHECKING:
    from rich.progress import Progress

_PATIENCE = 0.5
"""Seconds before it is said: what is quicker needs no word."""


def moves() -> bool:
    """Whether a line can be drawn again and again: stdout and stderr are a terminal that can."""
    return sys.stdout.isatty() and draws()


class Busy:
    """A line with a spinner and seconds; it needs a running loop."""

    def __init__(self) -> None:
        self._able = moves()
        self._timer: asyncio.TimerHandle | None = None
        self._progress: Progress | None = None
        self._what = ""
        self._since = 0.0

    def begin(self, what: str) -> None:
        """Say soon what is waited for; the seconds go on while it is the same."""
        if not self._able or self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        if what != self._what:
            self._what, self._since = what, loop.time()
        self._timer = loop.call_later(_PATIENCE, self._start)

    def end(self) -> None:
        """Take the line away."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _start(self) -> None:
        self._progress = bar(counted=False)
        self._progress.start()
        waited = asyncio.get_running_loop().time() - self._since
        task = self._progress.add_task(self._what, total=None)
        started = self._progress.tasks[task].start_time
        if started is not None:
            self._progress.tasks[task].start_time = started - waited
