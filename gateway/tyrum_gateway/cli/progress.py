"""How far long work has come, on a terminal. Invariant: it is drawn on stderr and leaves nothing behind."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Item = TypeVar("Item")

_PATIENCE = 0.5
"""Seconds before it is drawn: what is quicker needs none."""

_EVERY = 50
"""Steps between two looks at the clock."""


class Counter:
    """Counts what was done."""

    def __init__(self, what: str, total: int | None, *, drawn: bool) -> None:
        self._what = what
        self._total = total or None
        self._drawn = drawn
        self._done = 0
        self._begun = time.monotonic()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def step(self) -> None:
        """Count one more."""
        self._done += 1
        if self._drawn and self._done % _EVERY == 0:
            self._draw()

    def each(self, items: Iterable[Item]) -> Iterator[Item]:
        """Count items as they are taken."""
        for item in items:
            yield item
            self.step()

    def _draw(self) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=self._done)
        elif time.monotonic() - self._begun > _PATIENCE:
            self._progress = bar(counted=True)
            self._progress.start()
            self._task = self._progress.add_task(self._what, total=self._total, completed=self._done)

    def end(self) -> None:
        """Take it away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


@contextmanager
def counting(what: str, total: int | None = None, *, alone: bool = True) -> Iterator[Counter]:
    """Show how much of some work is done.

    Args:
        what: What is done, for people.
        total: Steps in all; None when that is not known.
        alone: Whether nothing else is written meanwhile; when it is, nothing is shown.
    """
    counter = Counter(what, total, drawn=alone and draws())
    try:
        yield counter
    finally:
        counter.end()


@contextmanager
def lasting(what: str) -> Iterator[None]:
    """Show that something takes its time."""
    if not draws():
        yield
        return
    with bar(counted=False) as progress:
        progress.add_task(what, total=None)
        yield


def draws() -> bool:
    """Whether stderr is a terminal on which a line can be drawn again."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def bar(*, counted: bool) -> "Progress":
    """Make what is drawn: a spinner with seconds, with `counted` also a bar and a number."""
    from rich.console import Console  # noqa: PLC0415 - heavy, and only for terminals
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn  # noqa: PLC0415

    amount = [BarColumn(bar_width=24), TextColumn("{task.completed:,.0f}", markup=False)] if counted else []
    return Progress(
        SpinnerColumn(style="none"),
        TextColumn("{task.description}", markup=False),
        *amount,
        TextColumn("{task.elapsed:.0f} s", markup=False, style="dim"),
        console=Console(stderr=True, highlight=False),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
