"""Canonical JSON and digests: equal values give equal bytes, so that a digest identifies a value.

RFC 8785 restricted to null, booleans, integers below 2**53, strings, lists and objects. Numbers with a
fraction do not occur in what the kernel digests, and refusing them avoids their formatting rules.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence

_LIMIT = 1 << 53
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)
_OUTSIDE = "canonical JSON holds null, booleans, integers, strings, lists and objects only"

Value = None | bool | int | str | Sequence["Value"] | Mapping[str, "Value"]
"""What can be digested."""


def canonical_json(value: Value) -> str:
    """Write a value in its one canonical form.

    Raises:
        TypeError: The value holds something outside `Value`.
        ValueError: An integer is too large to survive other JSON readers.
    """
    if _plain(value):
        # What nearly every value is: the library's order, by code point, is then the canonical one.
        return _ENCODER.encode(value)
    return _written(value)


def _plain(value: Value) -> bool:
    """Tell whether a value consists of the library's own types, its keys of characters below U+D800."""
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return True
    if isinstance(value, int):
        return -_LIMIT < value < _LIMIT
    if isinstance(value, dict):
        return all(map(_below_surrogates, value)) and all(map(_plain, value.values()))
    return isinstance(value, list | tuple) and all(map(_plain, value))


def _below_surrogates(key: object) -> bool:
    return isinstance(key, str) and (key.isascii() or max(key) < "\ud800")


def _written(value: Value) -> str:
    match value:
        case None | bool() | str():
            return json.dumps(value, ensure_ascii=False)
        case int():
            if abs(value) >= _LIMIT:
                raise ValueError("integers in canonical JSON stay below 2**53")
            return str(value)
        case Mapping():
            members = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be"))
            return "{" + ",".join(f"{_written(key)}:{_written(item)}" for key, item in members) + "}"
        case Sequence():
            return "[" + ",".join(_written(item) for item in value) + "]"
        case _:
            raise TypeError(_OUTSIDE)


def digest(tag: str, value: Value) -> str:
    """Identify a value within one kind of values.

    Args:
        tag: Kind and version, such as `tyrum.approval.1`; values of other kinds never collide.
        value: What to identify.

    Returns:
        `sha256:` and 64 hexadecimal digits.
    """
    return digest_text(tag, canonical_json(value))


def digest_text(tag: str, text: str) -> str:
    """Digest text that is already canonical."""
    return "sha256:" + hashlib.sha256(f"{tag}\n{text}".encode()).hexdigest()
