"""Identifiers: one type per entity, each a prefix and 26 lower-case ULID characters.

The invariant: an identifier is created by the kernel and never parsed for meaning; a string from outside
becomes an identifier only through `parse`, which checks prefix and alphabet.
"""

import re
from typing import ClassVar, Self

from tyrum_gateway.domain.errors import InvalidRequest

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32 in lower case: sorts like the numbers it writes."""

_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
_BODY = re.compile(f"[0-7][{ALPHABET}]{{25}}")


class EntityId(str):
    """An identifier of one kind of entity; subclasses differ to the type checker and by prefix."""

    __slots__ = ()
    prefix: ClassVar[str]

    @classmethod
    def build(cls, milliseconds: int, randomness: bytes) -> Self:
        """Compose an identifier that sorts by time.

        Args:
            milliseconds: Unix time, 0 to 2**48 - 1.
            randomness: Exactly 10 random bytes.
        """
        number = (milliseconds << 80) | int.from_bytes(randomness, "big")
        body = "".join([_PAIRS[(number >> shift) & 1023] for shift in range(120, -1, -10)])
        return cls(f"{cls.prefix}_{body}")

    @classmethod
    def parse(cls, text: str, field: str) -> Self:
        """Accept text from outside as an identifier.

        Args:
            text: The candidate.
            field: Where it stood, named in the error.

        Raises:
            InvalidRequest: Prefix or alphabet are wrong.
        """
        prefix, separator, body = text.partition("_")
        if prefix != cls.prefix or not separator or not _BODY.fullmatch(body):
            raise InvalidRequest(field, f"must be `{cls.prefix}_` and 26 characters")
        return cls(text)


class ConversationId(EntityId):
    """A conversation."""

    prefix = "conv"


class TurnId(EntityId):
    """A turn of a conversation."""

    prefix = "turn"


class CallId(EntityId):
    """A tool call of a turn."""

    prefix = "call"


class RunId(EntityId):
    """A turn in the run registry."""

    prefix = "run"

    @classmethod
    def of(cls, turn_id: TurnId) -> Self:
        """Name the run of a turn: the same characters under another prefix."""
        return cls(f"{cls.prefix}_{turn_id.partition('_')[2]}")

    @property
    def turn_id(self) -> TurnId:
        """The turn."""
        return TurnId(f"{TurnId.prefix}_{self.partition('_')[2]}")


class OperationId(EntityId):
    """One side effect, executed at most once."""

    prefix = "op"


class ProcessId(EntityId):
    """A process run for an operation."""

    prefix = "proc"


class ApprovalId(EntityId):
    """A question to a human."""

    prefix = "appr"


class BindingId(EntityId):
    """An immutable selection of a provider."""

    prefix = "bind"


class PrincipalId(EntityId):
    """Somebody who may call the gateway."""

    prefix = "prin"


class TokenId(EntityId):
    """A bearer token, by a name that is no secret."""

    prefix = "tok"


class OverrideId(EntityId):
    """A standing permission that a human gave for calls like one they approved."""

    prefix = "over"


class IncidentId(EntityId):
    """One unexpected failure, named to the user and explained in the log."""

    prefix = "inc"
