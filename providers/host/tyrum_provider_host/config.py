"""The configuration that a provider is given: its canonical bytes, and the check against its own schema.

Invariant: a schema is data. It is evaluated locally, refers to nothing outside itself, and no finding repeats
a configured value.
"""

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import rfc8785
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from tyrum_provider_host.logs import sanitise

MAX_CONFIG_BYTES = 64 * 1024
_MAX_FINDINGS = 16


class ConfigError(ValueError):
    """The configuration or the schema is unusable; the message says which and where."""


@dataclass(frozen=True, slots=True)
class PreparedConfig:
    """A configuration as it travels."""

    canonical: bytes
    """RFC 8785 canonical JSON."""
    digest: str
    """`sha256:` and 64 hexadecimal digits over `canonical`."""


def prepare(config: Mapping[str, Any]) -> PreparedConfig:
    """Serialise `config`.

    Raises:
        ConfigError: it is not JSON or larger than 64 KiB.
    """
    try:
        canonical = rfc8785.dumps(_plain(config))
    except (rfc8785.CanonicalizationError, TypeError, RecursionError) as error:
        raise ConfigError(f"the configuration is not JSON: {type(error).__name__}") from None
    if len(canonical) > MAX_CONFIG_BYTES:
        raise ConfigError(f"the configuration has {len(canonical)} bytes, at most {MAX_CONFIG_BYTES}")
    return PreparedConfig(canonical, f"sha256:{sha256(canonical).hexdigest()}")


def findings(schema_text: str, prepared: PreparedConfig) -> tuple[str, ...]:
    """List what `prepared` breaks in the schema, as `pointer: rule`; empty when it is valid.

    Raises:
        ConfigError: the schema is not a usable JSON Schema 2020-12.
    """
    validator = _validator(schema_text)
    instance = json.loads(prepared.canonical)
    try:
        errors = sorted(
            validator.iter_errors(instance), key=lambda error: list(map(str, error.absolute_path))
        )
    except Unresolvable:
        raise ConfigError("the schema refers to something outside itself") from None
    except RecursionError:
        raise ConfigError("the schema recurses without end") from None
    except Exception as error:  # noqa: BLE001 - what a library makes of a provider's text is the provider's fault
        raise ConfigError(f"the schema cannot be evaluated: {type(error).__name__}") from None
    return tuple(_finding(error) for error in errors[:_MAX_FINDINGS])


@functools.lru_cache(maxsize=64)
def _validator(schema_text: str) -> Draft202012Validator:
    try:
        schema = json.loads(schema_text)
    except (ValueError, RecursionError):
        raise ConfigError("the schema is not JSON") from None
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ConfigError("the schema must be a JSON object with type `object`")
    outside = next((reference for reference in _references(schema) if not reference.startswith("#")), None)
    if outside is not None:
        raise ConfigError(f"the schema refers to `{sanitise(outside, 128)}` outside itself")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ConfigError(
            f"the schema is not JSON Schema 2020-12: {error.json_path}: {error.validator}"
        ) from None
    except RecursionError:
        raise ConfigError("the schema is nested too deeply") from None
    return Draft202012Validator(schema, registry=Registry())


def _references(node: object) -> Iterator[str]:
    pending = [node]
    while pending:
        match pending.pop():
            case dict() as mapping:
                for key, value in mapping.items():
                    if key in {"$ref", "$dynamicRef"} and isinstance(value, str):
                        yield value
                    pending.append(value)
            case list() as sequence:
                pending.extend(sequence)
            case _:
                pass


def _finding(error: ValidationError) -> str:
    pointer = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in error.absolute_path)
    rule = str(error.validator)
    names: list[str] = []
    expected = error.validator_value
    if rule in {"anyOf", "oneOf", "enum"} and isinstance(expected, list):
        options = [{"const": option} if rule == "enum" else option for option in expected]
        names = [" or ".join(map(_permitted, options))]
    elif rule == "const":
        names = [json.dumps(expected, ensure_ascii=False)]
    elif isinstance(error.instance, dict):
        present = set(error.instance)
        if rule == "required" and isinstance(expected, list):
            names = [str(name) for name in expected if name not in present]
        elif rule == "additionalProperties" and isinstance(error.schema, Mapping):
            names = sorted(present - set(error.schema.get("properties", {})))
    elif isinstance(expected, str | int | float):
        names = [str(expected)]
    return sanitise(f"{pointer or '/'}: {rule}" + (f" ({', '.join(names)})" if names else ""), 256)


def _permitted(schema: object) -> str:
    match schema:
        case {"const": value}:
            return json.dumps(value, ensure_ascii=False)
        case {"type": "object", "properties": {**properties}} if properties:
            return f"an object of {', '.join(map(str, properties))}"
        case {"type": str(name)}:
            return name
        case _:
            return "what else the schema describes"


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value
