"""What shell text turns out to be: a script of literal simple commands, or opaque.

Invariant: a `Script` says the same as the text does to bash; whoever cannot promise that returns `Opaque`.
"""

from dataclasses import dataclass
from enum import StrEnum

MAX_BYTES = 16 * 1024
MAX_COMMANDS = 16
MAX_WORDS = 256
"""In one command, its name included."""


class Operator(StrEnum):
    """What stands between two commands."""

    AND = "&&"
    OR = "||"
    PIPE = "|"
    THEN = ";"
    """A semicolon or a line end."""


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A program's name and its arguments, all literal."""

    words: tuple[str, ...]
    """At least one; quotes are gone."""


@dataclass(frozen=True, slots=True)
class Script:
    """Commands and, between each two, an operator."""

    commands: tuple[SimpleCommand, ...]
    operators: tuple[Operator, ...] = ()

    def piped(self, index: int) -> bool:
        """Tell whether the command reads what another one writes."""
        return index > 0 and self.operators[index - 1] is Operator.PIPE


@dataclass(frozen=True, slots=True)
class Sighting:
    """A command seen inside opaque text; there may be others that nobody sees."""

    words: tuple[str, ...]
    """Its literal words up to the first that is not."""
    complete: bool
    """Whether these are all."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """Text that is more than literal simple commands, or that two readers read differently."""

    reason: str
    position: int
    """In characters from the beginning, where the first such thing stands."""
    sightings: tuple[Sighting, ...] = ()
