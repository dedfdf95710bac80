"""Turns what the shape check found into positioned problems in the operator's words.

Invariant: no message repeats a value of the file; the validation library's own texts are not used.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tyrum_gateway.config import document
from tyrum_gateway.config.document import Document, Node, Scalar, Sequence, descend
from tyrum_gateway.config.model import ConfigFile
from tyrum_gateway.config.problems import Path, Place, Problem, did_you_mean, one_of
from tyrum_gateway.config.section import Section
from tyrum_gateway.config.values import NAME, SECRET_NAME

Schema = Mapping[str, Any]

_LATER = "not available yet in this version"
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "`true` or `false`",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "kind": "a mapping with `kind`",
}
_OWN = frozenset(
    {
        "address",
        "any",
        "argument",
        "duration",
        "not_loopback",
        "nul",
        "path",
        "range",
        "size",
        "too_large",
        "url",
        "version_range",
    }
)
"""Error types raised by our own validators: their messages are ours."""


def explain(
    error: ValidationError, tree: Document, file: str, *, shape: type[Section] = ConfigFile
) -> Iterator[Problem]:
    """List the problems behind a failed shape check; what is known to be unusable is passed over."""
    schema = shape.model_json_schema()
    for detail in error.errors(include_url=False, include_input=False):
        location = _Location(detail, tree.root, schema)
        if any(location.path[: len(path)] == path for path in tree.unusable):
            continue
        code, message = _describe(detail, location)
        yield Problem(file, location.place, location.path, code, message)


class _Location:
    """Where an error lies in the file and in the schema."""

    def __init__(self, detail: ErrorDetails, root: Node | None, schema: Schema) -> None:
        parts = [part for part in detail["loc"] if part != "[key]"]
        self.of_key = len(parts) < len(detail["loc"]) or detail["type"] == "extra_forbidden"
        candidates = [schema]
        path: list[str | int] = []
        for part in parts:
            tag = part[1:-1] if isinstance(part, str) and part.startswith("<") else None
            if tag is not None:
                candidates = [found for found in _expand(candidates, schema) if _is_tagged(found, tag)]
            else:
                self.parent_schemas = list(_expand(candidates, schema))
                candidates = list(_step(self.parent_schemas, part))
                path.append(part)
        self.schemas = list(_expand(candidates, schema))
        self.path: Path = tuple(path)
        self.node = descend(root, *path)
        self.place = _place(root, self.path, of_key=self.of_key)

    @property
    def known_keys(self) -> list[str]:
        """Keys that the mapping around the error may have."""
        return [key for found in self.parent_schemas for key in found.get("properties", ())]


def _place(root: Node | None, path: Path, *, of_key: bool) -> Place:
    parent = descend(root, *path[:-1])
    if path and isinstance(parent, document.Mapping) and isinstance(path[-1], str):
        entry = parent.entries.get(path[-1])
        if entry is None:  # a missing key: the mapping that lacks it
            return _place(root, path[:-1], of_key=True)
        return entry.place if of_key or isinstance(entry.value, document.Mapping) else entry.value.place
    node = descend(root, *path)
    return node.place if node is not None else Place(1, 1)


def _describe(detail: ErrorDetails, at: _Location) -> tuple[str, str]:
    kind = detail["type"]
    context = detail.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(at)
    if kind == "missing":
        return "missing", "required key is missing"
    if _is_exclusive(at.path) and isinstance(at.node, Sequence | document.Mapping):
        return (
            "exclusive_scope",
            "isolation is exclusive: exactly one provider serves it; name one, none is chosen among several",
        )
    match at.path, at.node:
        case ("providers", _, "kind"), Scalar(value="memory" | "context" as later):
            return "not_available", f"{later} providers are {_LATER}"
        case _:
            pass
    if at.path == ("version",):
        return "version", "this version of Tyrum reads `version: 1`"
    if kind == "kind":
        return _unknown_kind(at)
    if kind in _EXPECTED:
        return "type", f"expected {_EXPECTED[kind]}, found {_found(at.node)}{_hint(kind, at.node)}"
    if kind == "literal_error":
        return _not_among(at)
    if kind in _OWN:
        return kind, detail["msg"]
    return "value", _limit(kind, context, at)


def _unknown_key(at: _Location) -> tuple[str, str]:
    key = str(at.path[-1])
    match at.path:
        case ("agents", _):
            return "not_available", "only the agent `default` is served yet"
        case ("profiles" | "agents", *_, "memory" | "context") if at.path[-2] == "profiles":
            return "not_available", f"{key} profiles are {_LATER}"
        case ("storage", _):
            return "unknown_key", "unknown key; `storage` has no keys in this version"
        case _:
            return "unknown_key", f"unknown key{did_you_mean(key, at.known_keys)}"


def _is_exclusive(path: Path) -> bool:
    match path:
        case ("profiles", "isolation", _, "provider") | ("agents", _, "profiles", "isolation"):
            return True
        case ("profiles", "isolation", _):
            return True
        case _:
            return False


def _unknown_kind(at: _Location) -> tuple[str, str]:
    kinds = [
        str(found["properties"]["kind"]["const"])
        for found in at.schemas
        if "kind" in found.get("properties", ())
    ]
    given = descend(at.node, "kind") if at.node is not None else None
    if not isinstance(at.node, document.Mapping):
        return "type", f"expected a mapping with `kind`, found {_found(at.node)}"
    if not isinstance(given, Scalar) or not isinstance(given.value, str):
        return "missing", f"`kind` must be {one_of(kinds)}"
    return "unknown_kind", f"`kind` must be {one_of(kinds)}{did_you_mean(given.value, kinds)}"


def _not_among(at: _Location) -> tuple[str, str]:
    allowed = [
        str(value)
        for found in at.schemas
        for value in found.get("enum", [found.get("const")])
        if value is not None
    ]
    value = at.node.value if isinstance(at.node, Scalar) else None
    if isinstance(value, str):
        hint = did_you_mean(value, allowed) if len(allowed) > 1 else ""
        return "value", f"expected {one_of(allowed)}{hint}"
    return "type", f"expected {one_of(allowed)}, found {_found(at.node)}{_hint('string_type', at.node)}"


def _limit(kind: str, context: Mapping[str, Any], at: _Location) -> str:
    match kind:
        case "string_pattern_mismatch" if at.of_key or _is_name(context):
            return f"a name must match `{str(context['pattern']).strip('^$')}`"
        case "string_pattern_mismatch":
            return f"must match `{context['pattern']}`"
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
        case "string_too_short" | "too_short":
            return "must not be empty"
        case "string_too_long":
            return f"at most {context['max_length']} characters"
        case "too_long":
            return f"at most {context['max_length']} entries"
        case _:
            return f"not acceptable ({kind})"


def _is_name(context: Mapping[str, Any]) -> bool:
    return context.get("pattern") in {f"^{NAME}$", f"^{SECRET_NAME}$"}


def _found(node: Node | None) -> str:
    match node:
        case None | Scalar(value=None):
            return "nothing"
        case Scalar(value=bool()):
            return "a boolean"
        case Scalar(value=int() | float()):
            return "a number"
        case Scalar():
            return "text"
        case Sequence():
            return "a list"
        case document.Mapping():
            return "a mapping"


def _hint(kind: str, node: Node | None) -> str:
    match kind, node:
        case "bool_type", Scalar(value="true" | "false"):
            return "; remove the quotes"
        case "bool_type", Scalar(value=str()):
            return " (in YAML 1.2 `yes`, `no`, `on` and `off` are text)"
        case "string_type", Scalar(value=bool() | int() | float()):
            return "; quote it to make it text"
        case "int_type", Scalar(value=str()):
            return "; remove quotes and units"
        case _:
            return ""


def _expand(schemas: list[Schema], root: Schema) -> Iterator[Schema]:
    """Follow references and alternatives down to plain schemas."""
    for found in schemas:
        if "$ref" in found:
            yield from _expand([root["$defs"][found["$ref"].rpartition("/")[2]]], root)
        elif alternatives := [*found.get("anyOf", ()), *found.get("oneOf", ())]:
            yield from _expand(alternatives, root)
        else:
            yield found


def _is_tagged(schema: Schema, tag: str) -> bool:
    properties = schema.get("properties", {})
    if "kind" in properties:
        return bool(properties["kind"].get("const") == tag)
    return tag in properties or (tag == "literal" and schema.get("type") == "string")


def _step(schemas: list[Schema], part: str | int) -> Iterator[Schema]:
    for found in schemas:
        if isinstance(part, int):
            if isinstance(found.get("items"), dict):
                yield found["items"]
            continue
        if part in found.get("properties", ()):
            yield found["properties"][part]
        elif isinstance(found.get("additionalProperties"), dict):
            yield found["additionalProperties"]
        else:
            yield from found.get("patternProperties", {}).values()
