"""Reading JSON that a model's server sent: every value may be missing or of another type."""

import json
from collections.abc import Mapping, Sequence

from tyrum_gateway.models.failures import Ending, StreamEnded

_MOST = 2**40
"""The largest number that is taken: sums over all attempts of a turn stay far within 64 bits."""


def read_object(data: str) -> Mapping[str, object]:
    """Read the data of an event.

    Raises:
        StreamEnded: It is no JSON object.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise StreamEnded(Ending.UNREADABLE) from None
    if not isinstance(value, dict):
        raise StreamEnded(Ending.UNREADABLE)
    return value


def mapping(parent: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Return a mapping; an empty one when there is none."""
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def items(parent: Mapping[str, object], key: str) -> Sequence[Mapping[str, object]]:
    """Return the mappings of a list."""
    value = parent.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(parent: Mapping[str, object], key: str) -> str:
    """Return a text; an empty one when there is none."""
    value = parent.get(key)
    return value if isinstance(value, str) else ""


def number(parent: Mapping[str, object], key: str) -> int | None:
    """Return a whole number from 0 to 2**40; None when there is none."""
    value = parent.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        return None
    return value
