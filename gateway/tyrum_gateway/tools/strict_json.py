"""Strict JSON for tool arguments: hostile text in, bounded values out, or one problem that names its place.

Invariant: a value that is returned was written exactly once and means the same to every JSON reader: no
duplicate members, no NaN, no fractions, no lone surrogates, no NUL, bounded in size and depth.
"""

import json
import re
from typing import Any, NoReturn

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 4
_MAX_DIGITS = 15
_NESTING = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


class ArgumentProblem(ValueError):
    """The arguments are invalid; the text names the place and is safe to show to the model."""


def parse_object(text: str) -> dict[str, Any]:
    """Read one JSON object.

    Raises:
        ArgumentProblem: It is no object, or breaks a bound.
    """
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise ArgumentProblem(f"the arguments are larger than {MAX_BYTES // 1024} KiB")
    _require_shallow(text)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_members,
            parse_int=_integer,
            parse_float=_refuse_fraction,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise ArgumentProblem(f"the arguments are no JSON: {error.msg} at character {error.pos}") from None
    if not isinstance(value, dict):
        raise ArgumentProblem("the arguments must be a JSON object")
    _require_text(value, "arguments")
    return value


def shown(name: str) -> str:
    """Quote a name from hostile input: printable ASCII, at most 64 characters."""
    cut = name[:64]
    return cut.encode("ascii", "backslashreplace").decode() if cut.isprintable() else ascii(cut)[1:-1]


def _require_shallow(text: str) -> None:
    # Before parsing, because the parser recurses; strings are skipped so that their brackets do not count.
    depth = 0
    for token in _NESTING.finditer(text):
        if token[0] in {"[", "{"}:
            depth += 1
            if depth > MAX_DEPTH:
                raise ArgumentProblem(f"the arguments are nested deeper than {MAX_DEPTH} levels")
        elif token[0] in {"]", "}"}:
            depth -= 1


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ArgumentProblem(f"`{shown(name)}` stands twice")
        members[name] = value
    return members


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ArgumentProblem(f"a number has more than {_MAX_DIGITS} digits")
    return int(digits)


def _refuse_fraction(digits: str) -> NoReturn:
    raise ArgumentProblem(f"`{digits[:20]}` is no whole number")


def _refuse_constant(name: str) -> NoReturn:
    raise ArgumentProblem(f"`{name}` is no JSON value")


def _require_text(value: Any, place: str) -> None:
    match value:
        case str():
            if "\0" in value:
                raise ArgumentProblem(f"`{place}` holds a NUL character")
            if not _is_text(value):
                raise ArgumentProblem(f"`{place}` holds half of a surrogate pair")
        case list():
            for index, item in enumerate(value):
                _require_text(item, f"{place}[{index}]")
        case dict():
            for name, item in value.items():
                if "\0" in name or not _is_text(name):
                    raise ArgumentProblem(f"`{place}` has a member whose name is no text")
                _require_text(item, shown(name) if place == "arguments" else f"{place}.{shown(name)}")
        case _:
            pass


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
