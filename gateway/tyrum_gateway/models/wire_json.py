"""Reading JSON that a model's server sent: every value may be missing or of another type.

A value of another type is not a missing one: it is taken where its meaning is plain, and fails the step
otherwise.
"""

import json
from collections.abc import Mapping, Sequence

from tyrum_gateway.models.failures import Ending, StreamEnded


class Repeated(dict[str, object]):
    """An object that has a name twice: readers differ in which of the two counts."""


_MOST = 2**40
"""The largest number that is taken: sums over all attempts of a turn stay far within 64 bits."""


def read_object(data: str) -> Mapping[str, object]:
    """Read the data of an event.

    Raises:
        StreamEnded: It is no JSON object.
    """
    try:
        value = json.loads(data, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        raise StreamEnded(Ending.UNREADABLE) from None
    if not isinstance(value, dict):
        raise StreamEnded(Ending.UNREADABLE)
    return value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else Repeated(found)


def mapping(parent: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Return a mapping; an empty one when there is none."""
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def items(parent: Mapping[str, object], key: str) -> Sequence[Mapping[str, object]]:
    """Return the mappings of a list, or the one that stands in its place.

    Raises:
        StreamEnded: There is something else.
    """
    value = parent.get(key)
    if value is None:
        return []
    found = [value] if isinstance(value, dict) else value
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise StreamEnded(Ending.UNREADABLE)
    return found


def text(parent: Mapping[str, object], key: str) -> str:
    """Return a text; an empty one when there is none."""
    value = parent.get(key)
    return value if isinstance(value, str) else ""


def words(parent: Mapping[str, object], key: str) -> str:
    """Return what is said: a text, or the texts among parts; what a model only thinks is no part of it.

    Raises:
        StreamEnded: There is something else.
    """
    value = parent.get(key)
    parts = value if isinstance(value, list) else [] if value is None else [value]
    said = ""
    for part in parts:
        match part:
            case str():
                said += part
            case {"type": "text" | "output_text", "text": str(new)}:
                said += new
            case {"type": str(kind)} if kind not in {"text", "output_text"}:
                pass
            case {"text": str(new)}:
                said += new
            case _:
                raise StreamEnded(Ending.UNREADABLE)
    return said


def arguments(parent: Mapping[str, object], *keys: str) -> str:
    """Return the arguments of a call, or a piece of them: a text, or an object as the text that it is.

    Raises:
        StreamEnded: There is something else, or an object with a name twice.
    """
    value = next((parent[key] for key in keys if parent.get(key) is not None), None)
    if value is None or isinstance(value, str):
        return value or ""
    try:
        if isinstance(value, dict) and not _repeats(value):
            return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        pass
    raise StreamEnded(Ending.MALFORMED)


def _repeats(value: object) -> bool:
    match value:
        case Repeated():
            return True
        case dict():
            return any(map(_repeats, value.values()))
        case list():
            return any(map(_repeats, value))
        case _:
            return False


def position(parent: Mapping[str, object], key: str) -> int | None:
    """Return an index, which some servers write as a text; None when there is none."""
    value = parent.get(key)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return number(parent, key)


def number(parent: Mapping[str, object], key: str) -> int | None:
    """Return a whole number from 0 to 2**40; None when there is none."""
    value = parent.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        return None
    return value
