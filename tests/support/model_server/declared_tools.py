"""What the large services answer to the tools of a request: 400 and a text, for the whole request.

Written from their documents and their answers, and on purpose not from our own subset.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_TOP = ("oneOf", "anyOf", "allOf", "enum", "not")
_NO_GEMINI = {
    *("oneOf", "allOf", "not", "propertyNames", "uniqueItems", "patternProperties", "const", "$ref", "$defs"),
    *("$schema", "if", "then", "else", "dependentRequired", "contains", "prefixItems", "exclusiveMinimum"),
}
_TYPES = {"object", "array", "string", "integer", "number", "boolean"}


def refusals(name: str, description: str, parameters: Mapping[str, Any]) -> Iterator[str]:
    """Say what OpenAI, Anthropic, Gemini or llama.cpp would answer to one tool."""
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
        yield "OpenAI: Invalid 'tools[0].function.name': string does not match pattern."
    if not re.match(r"[a-zA-Z_]", name):
        yield "Gemini: Invalid function name. Must start with a letter or an underscore."
    if len(description) > 1024:
        yield "OpenAI: Invalid 'tools[0].function.description': string too long."
    if not description:
        yield "Gemini: function_declarations[0].description: must be specified."
    if parameters.get("type") != "object" or any(key in parameters for key in _TOP):
        yield (
            f"OpenAI: Invalid schema for function '{name}': schema must have type 'object' and not have "
            "'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
        )
    if any(key in parameters for key in ("oneOf", "allOf", "anyOf")):
        yield (
            "Anthropic: tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at "
            "the top level"
        )
    if "properties" not in parameters:
        yield f"OpenAI: Invalid schema for function '{name}': object schema missing properties."
    yield from _nested(parameters)


def _nested(schema: Any) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        yield f"Gemini: Invalid value at 'parameters.type': {kind!r}"
    if kind == "array" and not isinstance(schema.get("items"), Mapping):
        yield "OpenAI: array schema missing items."
    yield from (f'Gemini: Unknown name "{key}": Cannot find field.' for key in schema if key in _NO_GEMINI)
    for key in ("maxLength", "maxItems", "minLength", "minItems"):
        if schema.get(key, 0) > 2000:
            yield "llama.cpp: failed to parse grammar: number of repetitions exceeds sane defaults"
    for member in schema.get("properties", {}).values():
        yield from _nested(member)
    yield from _nested(schema.get("items"))
    yield from _nested(schema.get("additionalProperties"))
