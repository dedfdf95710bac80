"""Redaction: secret values never reach a log, whatever field they are in.

Invariant: it is the last step before rendering; a value registered here, or a field named like a secret,
leaves as `***`. So does a value as errors and requests quote it: escaped, in a URL, in base64, or one of its
lines.
"""

import base64
import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

MASK = "***"
SENSITIVE = frozenset(
    {
        *("authorization", "proxy-authorization", "x-api-key", "cookie", "set-cookie"),
        *("api_key", "bearer", "credential", "password", "secret_env", "secret_value", "token"),
    }
)
"""Names of fields whose values are masked whole."""

_OWN_TOKENS = r"tyt_[A-Za-z0-9_-]{43}"
"""What bearer tokens of the gateway itself look like: masked though nobody registers them."""

_SHORTEST = 4
_SHORTEST_PART = 12
"""Characters of the shortest part of a value that is masked by itself: shorter ones are ordinary text."""

_MAX_DEPTH = 8
_URL_SAFE = str.maketrans("+/", "-_")


class Redactor:
    """Masks registered values and sensitive fields; a processor for structlog."""

    def __init__(self) -> None:
        self._values: frozenset[str] = frozenset()
        self._pattern = re.compile(_OWN_TOKENS)

    def register(self, values: Iterable[str]) -> None:
        """Mask these values from now on; those shorter than four characters would mask ordinary text.

        Args:
            values: Secrets, which are UTF-8 text.
        """
        fresh = {value for value in values if len(value) >= _SHORTEST} - self._values
        if fresh:
            self._values |= fresh
            forms = {form for value in self._values for form in _forms(value)}
            longest_first = sorted(forms, key=len, reverse=True)
            self._pattern = re.compile("|".join([*map(re.escape, longest_first), _OWN_TOKENS]))

    def text(self, text: str) -> str:
        """Mask registered values, and bearer tokens of the gateway, in a text."""
        return self._pattern.sub(MASK, text)

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Mask an event; structlog's calling convention."""
        del logger, method
        return {key: self._field(key, value, 0) for key, value in event.items()}

    def _field(self, key: Any, value: Any, depth: int) -> Any:
        if isinstance(key, str) and key.lower() in SENSITIVE:
            return MASK
        return self._value(value, depth)

    def _value(self, value: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            return MASK
        match value:
            case None | bool() | int() | float():
                return value
            case str():
                return self.text(value)
            case Mapping():
                return {self._key(key): self._field(key, item, depth + 1) for key, item in value.items()}
            case list() | tuple() | set() | frozenset():
                return [self._value(item, depth + 1) for item in value]
            case _:
                return self.text(str(value))

    def _key(self, key: Any) -> str:
        return self.text(str(key))


def _forms(value: str) -> set[str]:
    """Return a value, what it looks like where others quote it, and its longer lines."""
    whole = {
        value,
        *(json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)),
        repr(value)[1:-1],
        urllib.parse.quote(value, safe=""),
        urllib.parse.quote_plus(value),
    }
    parts = {*value.splitlines(), *_base64(value.encode())}
    return whole | {part for part in parts if len(part) >= _SHORTEST_PART}


def _base64(value: bytes) -> Iterator[str]:
    """Yield what base64 makes of a value, wherever it stands in what is encoded, such as after `user:`."""
    for before in range(3):
        # Of the first and the last group, neighbours decide a part.
        encoded = base64.b64encode(bytes(before) + value)
        inner = encoded[(0, 2, 3)[before] : (before + len(value)) * 8 // 6].decode()
        yield inner
        yield inner.translate(_URL_SAFE)
