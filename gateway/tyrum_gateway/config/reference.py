"""Writes the reference page of the configuration file from the model, so that the two cannot differ.

`python -m tyrum_gateway.config.reference` prints the page kept as docs/reference/config.md.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tyrum_gateway.config.document import MAX_BYTES, MAX_DEPTH, MAX_LINE, MAX_NODES
from tyrum_gateway.config.model import ConfigFile
from tyrum_gateway.domain.policy import HARMLESS


def _harmless() -> str:
    names: dict[str, list[str]] = {}
    for name, why in HARMLESS.items():
        names.setdefault(why, []).append(f"`{name}`")
    rows = [f"| {', '.join(items)} | {why} |" for why, items in names.items()]
    return "\n".join(["| programs | why |", "|---|---|", *rows])


_HARMLESS = _harmless()

_INTRODUCTION = f"""\
# Configuration file

<!-- Generated: .venv/bin/python -m tyrum_gateway.config.reference > docs/reference/config.md -->

One YAML file configures the gateway. `tyrum serve` takes the one that `--config` or
TYRUM_CONFIG names, else the quickstart. Changes apply at the next
start. [examples/reference.yaml](../../examples/reference.yaml) shows every key in place.

```
tyrum config validate [FILE]   every problem at once, as file:line:column: path: message; exit code 3
tyrum config validate --probe  also starts the providers: each is admitted and proves what profiles require
tyrum config show [FILE]       every key in force and whether file or default decided it
tyrum config schema            JSON Schema for editors
```

## How it is read

- YAML 1.2, UTF-8, one document of at most {MAX_BYTES // 1024 // 1024} MiB, {MAX_NODES:,} values, \
{MAX_DEPTH} levels and {MAX_LINE // 1024} Ki characters a line.
- Only `true` and `false` are booleans; `yes`, `no`, `on` and `off` are text. `017` is seventeen. Nothing is
  converted: a number where text is expected, or text where a number is expected, is an error.
- Anchors, aliases, merge keys and tags are errors, as are unknown and duplicate keys.
- A duration is a whole number with `ms`, `s`, `m`, `h` or `d`. A size is a whole number with `B`, `KiB`,
  `MiB`, `GiB` or `TiB`.
- Names are `[a-z][a-z0-9_-]{{0,62}}`; those of secrets `[A-Za-z_][A-Za-z0-9_]{{0,63}}`.
- No message repeats a value of the file.

## Secrets

A secret stays outside the file; `secrets` gives it a name, and everything else refers to the name.

| reference | source |
|---|---|
| `${{env:NAME}}` | environment variable of the gateway |
| `${{file:PATH}}` | regular file of at most 64 KiB; one final line feed is dropped |
| `${{credential:NAME}}` | systemd credential (`LoadCredential=`) |

A reference is the whole value: no surrounding text, no default. One that leads nowhere is an error. Anywhere
but under `secrets`, `${{…}}` is an error.

## Policy

Of the rules that match, deny wins over require_approval, and that over allow. What no rule matches asks a
human, unless the tool only reads. An allow rule for `process.run` names its program by absolute path and its
author; it admits only the environment names, standard input and secrets that it lists. The bundle named
`deployment` holds for every agent besides its own; neither can soften the other.

One literal command given as shell text is judged, and run, as its words in `argv`. Literal commands joined by
`&&`, `||`, `|`, `;` or line ends are allowed when each is; one that a pipe feeds reads standard input. All
other shell text asks, or is denied when a command seen in it is. [The guide](../guides/policy.md) has
examples, and shows how to test rules.

**A rule that allows a program allows everything that its arguments make it start.** An allow therefore fixes
every argument by text and gives no standard input, unless its program is known to start nothing, or the rule
says `may_start_others: true`: then its author answers for all that the program can start, and for files it
writes, which may run later. These are known to start nothing, and to write no file, whatever their arguments:

{_HARMLESS}

They are the distribution's own, in `/usr/bin` or `/bin`, by their real path.

## Keys
"""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the file."""

    path: str
    """With `NAME` where the operator chooses, `[]` for each item of a list."""
    type: str
    required: bool
    default: str
    description: str


def keys() -> Iterator[Key]:
    """List every key of the format once, in its order."""
    schema = ConfigFile.model_json_schema()
    yield from _keys(schema, "", schema)


def render() -> str:
    """Return the whole page."""
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key in keys():
        default = "**required**" if key.required else key.default
        lines.append(f"| `{key.path}` | {key.type} | {default} | {key.description} |")
    return _INTRODUCTION + "\n" + "\n".join(lines) + "\n"


def _keys(schema: Mapping[str, Any], prefix: str, root: Mapping[str, Any]) -> Iterator[Key]:
    required = schema.get("required", ())
    for name, raw in schema.get("properties", {}).items():
        path = f"{prefix}.{name}" if prefix else name
        field = _follow(raw, root)
        description = raw.get("description") or field.get("description", "")
        yield Key(path, _type(field, root), name in required, _default(raw), description)
        yield from _below(field, path, root)


def _below(field: Mapping[str, Any], path: str, root: Mapping[str, Any]) -> Iterator[Key]:
    if alternatives := _alternatives(field, root):
        yield from _merged(alternatives, path, root)
    elif "properties" in field:
        yield from _keys(field, path, root)
    elif isinstance(field.get("items"), dict):
        yield from _below(_follow(field["items"], root), f"{path}[]", root)
    elif entries := _entries(field):
        yield from _below(_follow(entries, root), f"{path}.NAME", root)


def _merged(alternatives: Sequence[Mapping[str, Any]], path: str, root: Mapping[str, Any]) -> Iterator[Key]:
    """List the keys of alternatives once; one that not all have says where it belongs."""
    found: dict[str, list[Key]] = {}
    kinds: dict[str, list[str]] = {}
    for alternative in alternatives:
        kind = alternative.get("properties", {}).get("kind", {}).get("const")
        for key in _keys(alternative, path, root):
            found.setdefault(key.path, []).append(key)
            kinds.setdefault(key.path, []).append(f"`{kind}`")
    for same in found.values():
        types = " or ".join(dict.fromkeys(key.type for key in same))
        where = kinds[same[0].path]
        shared = len(where) == len(alternatives) or "`None`" in where
        lead = "" if shared else f"Kind {' or '.join(where)}: "
        yield replace(same[0], type=types, description=lead + same[0].description)


def _entries(field: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schema of what a mapping with free names holds."""
    for found in (*field.get("patternProperties", {}).values(), field.get("additionalProperties")):
        if isinstance(found, dict):
            return found
    return None


def _alternatives(field: Mapping[str, Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [_follow(found, root) for found in (*field.get("oneOf", ()), *field.get("anyOf", ()))]


def _follow(field: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference, and take an optional value for the value."""
    if "$ref" in field:
        return _follow(root["$defs"][field["$ref"].rpartition("/")[2]], root)
    options = [option for option in field.get("anyOf", ()) if option.get("type") != "null"]
    return _follow(options[0], root) if len(options) == 1 else field


def _type(field: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    if "x-kind" in field:
        return str(field["x-kind"])
    if choices := field.get("enum") or ([field["const"]] if "const" in field else []):
        return " or ".join(f"`{choice}`" for choice in choices)
    if alternatives := _alternatives(field, root):
        return " or ".join(dict.fromkeys(_type(found, root) for found in alternatives))
    match field.get("type"):
        case "string":
            return "text"
        case "integer":
            return f"{field['minimum']} to {field['maximum']}"
        case "boolean":
            return "boolean"
        case "array":
            return f"list of {_type(_follow(field.get('items', {}), root), root)}"
        case "object":
            return "mapping"
        case _:
            return "any value"


def _default(field: Mapping[str, Any]) -> str:
    default = field.get("default")
    if default is None or isinstance(default, dict) or default == "":
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


if __name__ == "__main__":
    sys.stdout.write(render())
