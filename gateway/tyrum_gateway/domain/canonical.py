"""Canonical JSON and digests: equal values give equal bytes, so that a digest identifies a value.

RFC 8785 restricted to null, booleans, integers below 2**53, strings, lists and objects. Numbers with a
fraction do not occur in what the kernel digests, and refusing them avoids their formatting rules.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence

_OUTSIDE = "canonical JSON holds null, booleans, integers, strings, lists and objects only"

Value = None | bool | int | str | Sequence["Value"] | Mapping[str, "Value"]
"""What can be digested."""


def canonical_json(value: Value) -> str:
    """Write a value in its one canonical form.

    Raises:
        TypeError: The value holds something outside `Value`.
        ValueError: An integer is too large to survive other JSON readers.
    """
    match value:
        case None | bool() | str():
            return json.dumps(value, ensure_ascii=False)
        case int():
            if abs(value) >= 1 << 53:
                raise ValueError("integers in canonical JSON stay below 2**53")
            return str(value)
        case Mapping():
            members = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be"))
            return (
                "{" + ",".join(f"{canonical_json(key)}:{canonical_json(item)}" for key, item in members) + "}"
            )
        case Sequence():
            return "[" + ",".join(canonical_json(item) for item in value) + "]"
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
