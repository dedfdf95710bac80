"""A provider that declares what no host admits: its program ends with one line instead of a traceback.

Invariant: definitions are written where a module is imported, before `run` could report anything, so an
uncaught `InvalidDefinition` ends the process with place and rule on standard error and with status 2.
"""

import functools
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

EXIT_MISCONFIGURED = 2

_KIT = Path(__file__).parent
_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


class InvalidDefinition(ValueError):
    """A limit of the descriptor is broken; the message is the rule."""


@functools.cache
def end_with_one_line() -> None:
    """Report uncaught `InvalidDefinition`s that way; everything else is reported as before."""
    sys.excepthook = functools.partial(_report, sys.excepthook)


def _report(
    before: _Hook, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not isinstance(error, InvalidDefinition):
        before(kind, error, trace)
        return
    sys.stderr.write(f"cannot start: {_author(trace)}{error}\n")
    sys.exit(EXIT_MISCONFIGURED)


def _author(trace: TracebackType | None) -> str:
    """Name the last line outside the kit: the definition itself."""
    for frame in reversed(traceback.extract_tb(trace)):
        # A dataclass's own __init__ has no file.
        if not frame.filename.startswith("<string>") and Path(frame.filename).parent != _KIT:
            return f"{frame.filename}:{frame.lineno}: "
    return ""
