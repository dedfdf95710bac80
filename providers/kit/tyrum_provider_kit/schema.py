"""The configuration against the provider's own JSON Schema (2020-12).

Invariants: a schema refers to nothing outside itself and nothing is fetched; a violation names the place and
what the schema permits there, and repeats values of the schema only, never of the configuration.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from referencing import Registry

from tyrum_provider_kit.errors import clip

MAX_CONFIG_BYTES = 64 * 1024
MAX_SCHEMA_BYTES = 64 * 1024
MAX_VIOLATIONS = 64
MAX_RULE_BYTES = 64
MAX_MESSAGE_BYTES = 512

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One finding about a configuration.

    `path` is an RFC 6901 pointer (empty for the root) or `/secrets/NAME`, `rule` what does not hold, in at
    most 64 bytes, `message` an explanation that never repeats a value.
    """

    path: str
    rule: str
    message: str


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuse a schema the contract does not admit.

    Raises:
        ValueError: not JSON Schema 2020-12 of type object, too large, or with a reference to the outside.
    """
    if len(encode_schema(schema).encode()) > MAX_SCHEMA_BYTES:
        raise ValueError(f"config_schema is larger than {MAX_SCHEMA_BYTES} bytes")
    if schema.get("$schema", _DIALECT) != _DIALECT:
        raise ValueError("config_schema must be JSON Schema 2020-12")
    if schema.get("type") != "object":
        raise ValueError("config_schema must have `type: object`")
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise ValueError(f"config_schema refers to `{clip(reference, 128)}`, outside itself")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"config_schema is not valid at `{error.json_path}`: {error.validator}") from error


def encode_schema(schema: Mapping[str, Any]) -> str:
    """Serialise the schema for the descriptor, the same bytes every time."""
    return json.dumps(schema, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def parse_config(config: bytes) -> dict[str, Any]:
    """Parse a configuration strictly: one UTF-8 JSON object, no repeated names, finite numbers.

    Raises:
        ValueError: the message states the rule, never the text.
    """
    try:
        value = json.loads(
            config.decode("utf-8"),
            object_pairs_hook=_unique_names,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except _ConfigRuleError:
        raise
    except ValueError as error:  # bad UTF-8, bad JSON, or an integer of too many digits
        raise ValueError("must be a UTF-8 JSON object") from error
    if not isinstance(value, dict):
        raise _ConfigRuleError("must be a JSON object")
    return value


class _ConfigRuleError(ValueError):
    """Stricter than JSON: the message may be shown."""


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _ConfigRuleError("repeats a name within one object")
    return result


def _no_constant(_: str) -> float:
    raise _ConfigRuleError("must hold finite numbers only")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):  # 1e999
        raise _ConfigRuleError("must hold finite numbers only")
    return value


def violations(schema: Mapping[str, Any], config: Mapping[str, Any]) -> list[Violation]:
    """List what breaks the schema, in the order of the paths, without duplicates."""
    # The empty registry is the guarantee that no reference is ever fetched.
    validator = Draft202012Validator(schema, registry=Registry())
    found = {violation for error in validator.iter_errors(config) for violation in _explain(error)}
    return sorted(found)


def clipped(found: Sequence[Violation]) -> list[Violation]:
    """Keep the limits of the contract: 64 findings with short texts."""
    return [
        Violation(
            path=item.path,
            rule=clip(item.rule, MAX_RULE_BYTES),
            message=clip(item.message, MAX_MESSAGE_BYTES),
        )
        for item in found[:MAX_VIOLATIONS]
    ]


def pointer(parts: Sequence[str | int]) -> str:
    """Spell a path as RFC 6901 pointer."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _explain(error: ValidationError) -> Iterator[Violation]:
    rule = str(error.validator or "schema")
    place = pointer(list(error.absolute_path))
    expected = error.validator_value
    match rule:
        case "required" if isinstance(error.instance, dict) and isinstance(expected, list):
            for name in expected:
                if name not in error.instance:
                    yield Violation(place + pointer([name]), rule, "is required")
        case "additionalProperties" | "unevaluatedProperties" if expected is False:
            schema = error.schema if isinstance(error.schema, dict) else {}
            known = ", ".join(schema.get("properties", {}))
            for name in _unexpected(error):
                message = "is not a known property" + (f"; known are {known}" if known else "")
                yield Violation(place + pointer([name]), rule, message)
        case "anyOf" | "oneOf" if isinstance(expected, list):
            nearest = _nearest(error)
            for inner in nearest:
                yield from _explain(inner)
            if not nearest:
                exactly = "exactly one of: " if rule == "oneOf" else ""
                yield Violation(place, rule, f"must be {exactly}{' or '.join(map(permitted, expected))}")
        case "enum" | "const" | "type":
            yield Violation(place, rule, f"must be {permitted({rule: expected})}")
        case "not":
            yield Violation(place, rule, f"must not be {permitted(expected)}")
        case "uniqueItems":
            yield Violation(place, rule, "must not hold an item twice")
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" | "pattern":
            yield Violation(place, rule, f"must keep {rule} {expected}")
        case "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties":
            yield Violation(place, rule, f"must keep {rule} {expected}")
        case _:
            yield Violation(place, rule, f"does not satisfy `{rule}` of the schema")


def permitted(schema: object) -> str:
    """Say in words what a schema permits, as far as its first rule tells."""
    match schema:
        case {"const": value}:
            return json.dumps(value, ensure_ascii=False)
        case {"enum": [*values]}:
            return " or ".join(json.dumps(value, ensure_ascii=False) for value in values)
        case {"type": "object", "properties": {**properties}} if properties:
            return f"an object of {', '.join(map(str, properties))}"
        case {"type": [*names]}:
            return f"of type {' or '.join(map(str, names))}"
        case {"type": str(name)}:
            return f"of type {name}"
        case _:
            return "what the schema describes there"


def _nearest(error: ValidationError) -> list[ValidationError]:
    """Return what is wrong with the one alternative whose kind the value has; nothing when unclear."""
    alternatives: dict[object, list[ValidationError]] = {}
    for inner in error.context or ():
        alternatives.setdefault(inner.relative_schema_path[0], []).append(inner)
    near = [
        found
        for found in alternatives.values()
        if all(inner.relative_path or inner.validator not in {"type", "const", "enum"} for inner in found)
    ]
    return near[0] if len(near) == 1 else []


def _unexpected(error: ValidationError) -> Iterator[str]:
    schema = error.schema if isinstance(error.schema, dict) else {}
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    validator = Draft202012Validator({"type": "object", "patternProperties": dict.fromkeys(patterns, False)})
    for name in error.instance if isinstance(error.instance, dict) else ():
        if name not in known and validator.is_valid({name: None}):
            yield str(name)


def _references(node: object) -> Iterator[str]:
    match node:
        case Mapping():
            for key, value in node.items():
                if key in {"$ref", "$dynamicRef"} and isinstance(value, str):
                    yield value
                else:
                    yield from _references(value)
        case list() | tuple():
            for value in node:
                yield from _references(value)
        case _:
            return
