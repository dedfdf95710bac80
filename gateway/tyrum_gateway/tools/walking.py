"""Walking paths as Linux does, within what one call may look at.

Invariant: whatever a model writes, a call costs at most `MOST_LOOKS` file operations. Each is counted where
it is made; the one that is too many refuses the call.
"""

import errno
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

MOST_LOOKS: Final = 2_000
"""File operations that one call may cost: every look at, opening of and following of a file or directory."""

_LINKS: Final = 40
"""As many as Linux follows."""


class TooManyLooks(Exception):
    """A call would cost more file operations than one may; the text is safe to show to the model."""


@dataclass(slots=True)
class _Budget:
    left: int


_budget: ContextVar[_Budget] = ContextVar("file_looks")


@contextmanager
def budgeted(looks: int = MOST_LOOKS) -> Iterator[None]:
    """Bound the file operations made inside: those of one call."""
    token = _budget.set(_Budget(looks))
    try:
        yield
    finally:
        _budget.reset(token)


def look(times: int = 1) -> None:
    """Count file operations that are about to be made; outside of `budgeted` nothing is counted.

    Raises:
        TooManyLooks: They are more than one call may cost.
    """
    budget = _budget.get(None)
    if budget is None:
        return
    budget.left -= times
    if budget.left < 0:
        raise TooManyLooks(
            f"the paths that the call names take more than {MOST_LOOKS:,} looks at the file system: "
            "name fewer or shorter ones, and none that leads through long links"
        )


def lstat(path: str) -> os.stat_result:
    """Look at a file, or at the link.

    Raises:
        OSError: It cannot be looked at.
        ValueError: It is no path.
        TooManyLooks: See `look`.
    """
    look()
    return os.lstat(path)


def exists(path: str) -> bool:
    """Tell whether a name exists, also as a link that leads nowhere."""
    return isinstance(_looked_at(path), os.stat_result)


def resolved(path: str) -> tuple[str, os.stat_result]:
    """Follow an absolute path to its end, and return the place without links with what is there.

    Raises:
        OSError: It leads nowhere, or through more links than Linux follows.
        ValueError: It is no path.
        TooManyLooks: See `look`.
    """
    way = places(path)
    while True:
        try:
            _, seen = next(way)
        except StopIteration as end:
            place: str | None = end.value
            break
        if isinstance(seen, Exception):
            raise seen
    if place is None:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return place, lstat(place)


def places(
    path: str, directory: str = ""
) -> Generator[tuple[str, os.stat_result | Exception], None, str | None]:
    """Give every file, link and directory that opening a path passes, as Linux resolves it, and what each is.

    Args:
        path: Absolute, or relative to the directory.
        directory: Absolute path without links.

    Returns:
        Where it ends; None when it passes more links than Linux follows.

    Raises:
        TooManyLooks: See `look`.
    """
    yield "/", _looked_at("/")
    current, ahead, links = "" if path.startswith("/") else directory, path.split("/")[::-1], 0
    while ahead:
        part = ahead.pop()
        if part in {"", "."}:
            continue
        if part == "..":
            current = current.rpartition("/")[0]
            continue
        place = f"{current}/{part}"
        status = _looked_at(place)
        yield place, status
        if not isinstance(status, os.stat_result) or not stat.S_ISLNK(status.st_mode):
            current = place
            continue
        try:
            look()
            target = os.readlink(place)  # noqa: PTH115 - text all the way
        except OSError:
            current = place
            continue
        links += 1
        if links > _LINKS:
            return None
        if target.startswith("/"):
            current = ""
        ahead += target.split("/")[::-1]
    return current or "/"


def _looked_at(place: str) -> os.stat_result | Exception:
    look()
    try:
        return os.lstat(place)
    except (OSError, ValueError) as error:
        return error
