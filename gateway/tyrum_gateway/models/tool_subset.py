"""What a tool may be declared with: the subset of JSON Schema that every model server takes.

Every tool is held against it by a test. The large services answer a whole request with 400 for one keyword
that they do not take, so a keyword is here only when all of them take it; what a schema cannot say within it
stands in a description, and the kernel checks it.
"""

import re
from collections.abc import Iterator, Mapping

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""OpenAI takes 64 characters and no dot; Gemini wants a letter or `_` first."""
MAX_DESCRIPTION = 1024
"""Characters of a tool's description at OpenAI; Gemini wants one that is not empty."""
MAX_COUNT = 2000
"""Servers that turn schemas into grammars (llama.cpp) refuse to count further, and grow with the number."""
MAX_DEPTH = 5
"""Levels of objects and lists, as the strictest service takes them."""

_ANY = frozenset({"type", "description"})
KEYWORDS: Mapping[str, frozenset[str]] = {
    "object": _ANY | {"properties", "required", "additionalProperties"},
    "array": _ANY | {"items", "minItems", "maxItems"},
    "string": _ANY | {"enum"},
    "integer": _ANY | {"minimum", "maximum"},
    "number": _ANY | {"minimum", "maximum"},
    "boolean": _ANY,
}
"""Keywords by type.

Left out, with a server that refuses them: combinators and `not` (OpenAI, Anthropic at the top; llama.cpp
reads them before `properties`), `propertyNames`, `uniqueItems`, `patternProperties`, `$ref`, `const`
(Gemini), lists of types (Gemini, Ollama's templates), and `pattern` and lengths of texts, which grammars turn
into states.
"""


def problems(name: str, description: str, parameters: Mapping[str, object]) -> Iterator[str]:
    """Say what in the declaration of a tool some server would refuse.

    Args:
        name: As it is sent.
        description: Of the tool.
        parameters: Schema of its arguments.
    """
    if not NAME.fullmatch(name):
        yield f"`{name}` is no allowed name"
    if not 1 <= len(description.strip()) <= len(description) <= MAX_DESCRIPTION:
        yield f"its description has not 1 to {MAX_DESCRIPTION} characters"
    if parameters.get("type") != "object" or parameters.get("additionalProperties") is not False:
        yield "its arguments are no closed object"
    yield from _within("", parameters, 0)


def _within(place: str, schema: object, depth: int) -> Iterator[str]:
    here = place or "the arguments"
    if not isinstance(schema, Mapping):
        yield f"{here}: no schema"
        return
    kind = schema.get("type")
    allowed = KEYWORDS.get(kind) if isinstance(kind, str) else None
    if allowed is None or depth > MAX_DEPTH:
        yield f"{here}: {f'type {kind!r}' if allowed is None else 'too deep'}"
        return
    yield from (f"{here}: `{keyword}`" for keyword in schema if keyword not in allowed)
    if place and not str(schema.get("description", "")).strip() and not place.endswith(("[]", "{}")):
        yield f"{here}: no description"
    for keyword in ("minItems", "maxItems"):
        if not 0 <= int(str(schema.get(keyword, 0))) <= MAX_COUNT:
            yield f"{here}: `{keyword}` is beyond {MAX_COUNT}"
    match kind:
        case "object":
            yield from _members(place, schema, depth)
        case "array":
            yield from _within(f"{place}[]", schema.get("items"), depth + 1)
        case "string" if "enum" in schema and not all(isinstance(item, str) for item in schema["enum"]):
            yield f"{here}: `enum` of other than texts"
        case _:
            pass


def _members(place: str, schema: Mapping[str, object], depth: int) -> Iterator[str]:
    here = place or "the arguments"
    rest = schema.get("additionalProperties")
    if isinstance(rest, Mapping):
        # A map, which no other keyword could describe: the services take it outside their strict mode, which
        # is not asked for, and beside no keyword of an object with members.
        yield from (
            f"{here}: a map with `{keyword}`" for keyword in ("properties", "required") if keyword in schema
        )
        yield from _within(f"{place}{{}}", rest, depth + 1)
        return
    properties, required = schema.get("properties"), schema.get("required")
    if rest is not False or not isinstance(properties, Mapping) or not isinstance(required, list | tuple):
        yield f"{here}: needs `properties`, `required` and `additionalProperties: false`"
        return
    yield from (
        f"{here}: `{name}` is required and no property" for name in required if name not in properties
    )
    for name, member in properties.items():
        yield from _within(f"{place}.{name}".lstrip("."), member, depth + 1)
