"""What both protocols render alike: texts, past arguments and schemas, made such that servers take them."""

import math
from collections.abc import Mapping
from typing import Any

from tyrum_gateway.models.call_fragments import parse_object

EMPTY = "(no text)"
"""Stands for an empty text where a protocol demands one."""

_DEEPEST = 64
"""Levels of arguments that are sent as an object; encoders give up at some depth of their own."""


def shown(said: str) -> str:
    """Return a text that servers take: not one without any letter."""
    return said if said.strip() else EMPTY


def past_arguments(arguments: str) -> Mapping[str, object]:
    """Return arguments of a past call as an object, also those that are none or cannot be sent as one."""
    value = parse_object(arguments or "{}")
    return {"not_json": arguments} if value is None or not _sendable(value) else value


def _sendable(value: object, room: int = _DEEPEST) -> bool:
    """Tell whether JSON can carry a value that was read from it: escapes and exponents name others."""
    match value:
        case str():
            return not any("\ud800" <= letter <= "\udfff" for letter in value)
        case float():
            return math.isfinite(value)
        case dict():
            return room > 0 and all(_sendable(key) and _sendable(value[key], room - 1) for key in value)
        case list():
            return room > 0 and all(_sendable(item, room - 1) for item in value)
        case _:
            return True


def plain(value: object) -> Any:
    """Copy a schema into what JSON encoders take."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
