"""What is wrong with a configuration file, and where.

Invariant: a problem names places and keys, never values, because any value may be a misplaced secret.
"""

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_KEY = 64
_CANDIDATES = 200
MOST_OF_A_SORT = 200
"""Problems of the shape, and of the meaning, after which a run says no more."""

Path = tuple[str | int, ...]
"""Keys and list indexes from the root of the document to a value."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position in a text; both numbers count from 1, columns count characters."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


START = Place(1, 1)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that the operator has to change."""

    file: str
    place: Place
    path: Path
    code: str
    """Stable snake_case identifier of the kind of problem."""
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.place}: {show_path(self.path)}: {self.message}"

    def as_json(self) -> dict[str, str | int]:
        """Return the fields that `--output json` prints."""
        return {
            "file": self.file,
            "line": self.place.line,
            "column": self.place.column,
            "path": show_path(self.path),
            "code": self.code,
            "message": self.message,
        }


class ConfigProblems(Exception):
    """The configuration cannot be used; the operator fixes every listed problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems), key=_order))
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @property
    def exit_code(self) -> int:
        """Exit status of a command that was given such a file."""
        return 3


def _order(problem: Problem) -> tuple[Place, str, str, str]:
    return problem.place, show_path(problem.path), problem.code, problem.message


def show_path(path: Path) -> str:
    """Write a path as `providers.local.command[0]`; unusual keys are quoted, long ones cut."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{show_key(part)}]"
    return text or "(document)"


def show_key(key: str) -> str:
    """Write a key for a message: printable ASCII, at most 64 characters."""
    return json.dumps(key if len(key) <= _LONGEST_KEY else key[:_LONGEST_KEY] + "…")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` for the nearest known name, else nothing."""
    if len(name) > _LONGEST_KEY:
        return ""
    candidates = [key for key in sorted(known)[:_CANDIDATES] if len(key) <= _LONGEST_KEY]
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else ""


def one_of(names: Sequence[str], word: str = "or") -> str:
    """Write names as "`a`, `b` or `c`"."""
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {word} {quoted[-1]}"
