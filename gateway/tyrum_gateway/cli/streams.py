"""The standard streams of a command.

Invariants: what stdout does not take ends the command with an error, never with a traceback; what stderr does
not take is lost, and ends nothing; a character that their encoding lacks is escaped; the number of a closed
stream is given to no file that is opened later.
"""

import errno
import io
import os
import select
import sys
from typing import Any, TextIO


class Unwritten(Exception):
    """Stdout does not take the output; the text says why. A reader who has gone is no such error."""


class _Stdout(io.FileIO):
    """Tells an error of stdout from every other error of the system, and waits for a slow reader."""

    def write(self, data: Any, /) -> int:
        try:
            # None: it is full for now, and whoever shares it with this process set it not to block.
            while (taken := super().write(data)) is None:
                select.select([], [self], [])
            return taken
        except BrokenPipeError:
            raise
        except OSError as error:
            why = "stdout is closed" if error.errno == errno.EBADF else error.strerror
            raise Unwritten(why) from error


class _Stderr(io.FileIO):
    """Loses what stderr does not take: there is no place left to tell it, and nothing may end for it."""

    def write(self, data: Any, /) -> int:
        try:
            while (taken := super().write(data)) is None:
                select.select([], [self], [])
            return taken
        except OSError:
            return len(data)


def prepare() -> None:
    """Make the process's streams as the invariants say; call it once, before anything is opened."""
    # Whoever writes to a closed stdout has to be told: the null device is opened there for reading.
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Stderr(2, "w", closefd=False)),
        encoding="utf-8" if sys.stderr is None else sys.stderr.encoding,
        errors="backslashreplace",
        line_buffering=True,
    )
    sys.stdout = guarded(1, "utf-8" if sys.stdout is None else sys.stdout.encoding)


def guarded(descriptor: int, encoding: str = "utf-8") -> TextIO:
    """Write text to a descriptor that stays the caller's.

    Writing raises `Unwritten` when it does not take the text, and `BrokenPipeError` when its reader has gone.
    """
    raw = io.BufferedWriter(_Stdout(descriptor, "w", closefd=False))
    terminal = os.isatty(descriptor)
    return io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace", line_buffering=terminal)


def settle() -> None:
    """Write out what stdout still holds, or let go of it: the end of the process must not try again."""
    try:
        sys.stdout.flush()
    except (Unwritten, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
