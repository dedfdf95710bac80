"""Arguments of `process.run`: the closed schema the model is told, and all rules as checked code.

Invariant: there is no field, at any level, that names or influences a provider, a profile or a boundary
(ARCH-29, operator-only selection); what the schema does not list is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tyrum_gateway.tools.strict_json import ArgumentProblem, parse_object, shown

MAX_ARGV = 256
MAX_SHELL_BYTES = 16 * 1024
MAX_STDIN_BYTES = 64 * 1024
MAX_ENV = 64
MAX_SECRETS = 32
MAX_CWD_BYTES = 4096
MAX_STRING_BYTES = 128 * 1024 - 1
"""What Linux takes as one argument or one `NAME=VALUE`."""
MAX_TOTAL_BYTES = 224 * 1024
"""Arguments and environment together; leaves room for the base environment below the contract's 256 KiB."""
MAX_TIMEOUT_MS = 24 * 3600 * 1000

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_PREFIX = "TYRUM_"
_FIELDS = ("argv", "shell", "cwd", "env", "stdin", "secrets", "timeout_ms")

SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "argv": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "maxItems": MAX_ARGV,
            "description": "Program and arguments, run without a shell; give this or `shell`, never both. "
            "The program is a name that is looked for in the operator's directories, an absolute path, or a "
            "path with `/` relative to `cwd`. Each text has less than 128 KiB.",
        },
        "shell": {
            "type": "string",
            "description": "Text for bash, at most 16 KiB; give this or `argv`, never both. One plain "
            "command runs without a shell. More than plain commands joined by `&&`, `||`, `|` or `;` always "
            "needs a human's approval.",
        },
        "cwd": {
            "type": "string",
            "description": "Existing directory relative to the workspace, without links; by default the "
            "workspace itself.",
        },
        "env": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Environment variables by name, at most 64, on top of PATH, HOME and LANG; "
            "nothing is inherited. A name has letters, digits and `_`, no digit first, and does not begin "
            "with `TYRUM_`.",
        },
        "stdin": {
            "type": "string",
            "description": "Standard input, at most 64 KiB; empty without it.",
        },
        "secrets": {
            "type": "array",
            "items": {"type": "string"},
            "maxItems": MAX_SECRETS,
            "description": "Names of secrets the operator declared, each once, given as environment "
            "variables of the same name.",
        },
        "timeout_ms": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_TIMEOUT_MS,
            "description": "Wall-clock limit in milliseconds; the operator's limit by default.",
        },
    },
    "required": [],
    "additionalProperties": False,
}
"""JSON Schema as models are told it, in the subset that every server takes: one of `argv` and `shell`,
lengths, and forms of names are in words there, and checked below.
"""


@dataclass(frozen=True, slots=True)
class RunArguments:
    """A call that satisfies the schema; exactly one of `argv` and `shell` is set."""

    argv: tuple[str, ...] | None
    shell: str | None
    cwd: str
    env: Mapping[str, str]
    stdin: str
    secrets: tuple[str, ...]
    timeout_ms: int | None


def parse_arguments(text: str) -> RunArguments:
    """Check a call's arguments.

    Raises:
        ArgumentProblem: They break the schema; the text names the place.
    """
    members = parse_object(text)
    for name in members:
        if name not in _FIELDS:
            raise ArgumentProblem(f"`{shown(name)}` is no field; there are {', '.join(_FIELDS)}")
    if ("argv" in members) == ("shell" in members):
        raise ArgumentProblem("exactly one of `argv` and `shell` must be given")
    env = _env(members.get("env", {}))
    argv = _argv(members["argv"]) if "argv" in members else None
    shell = _shell(members["shell"]) if "shell" in members else None
    total = sum(_size(item) + 1 for item in argv or (shell or "",))
    total += sum(_size(name) + _size(value) + 2 for name, value in env.items())
    if total > MAX_TOTAL_BYTES:
        raise ArgumentProblem(f"arguments and `env` together are larger than {MAX_TOTAL_BYTES // 1024} KiB")
    return RunArguments(
        argv=argv,
        shell=shell,
        cwd=_bounded(members.get("cwd", "."), "cwd", MAX_CWD_BYTES),
        env=env,
        stdin=_bounded(members.get("stdin", ""), "stdin", MAX_STDIN_BYTES),
        secrets=_secrets(members.get("secrets", []), env),
        timeout_ms=_timeout(members["timeout_ms"]) if "timeout_ms" in members else None,
    )


def _argv(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_ARGV:
        raise ArgumentProblem(f"`argv` must be a list of 1 to {MAX_ARGV} texts")
    argv = tuple(_bounded(item, f"argv[{index}]", MAX_STRING_BYTES) for index, item in enumerate(value))
    if not argv[0]:
        raise ArgumentProblem("`argv[0]` names no program")
    return argv


def _shell(value: Any) -> str:
    text = _bounded(value, "shell", MAX_SHELL_BYTES)
    if not text.strip():
        raise ArgumentProblem("`shell` holds no text to run")
    return text


def _env(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict) or len(value) > MAX_ENV:
        raise ArgumentProblem(f"`env` must be an object of at most {MAX_ENV} texts")
    for name, item in value.items():
        place = f"env.{shown(name)}"
        if not ENV_NAME.fullmatch(name) or len(name) > 128:
            raise ArgumentProblem(
                f"`{place}`: a name has letters, digits and `_`, at most 128, no digit first"
            )
        if name.startswith(_RESERVED_PREFIX):
            raise ArgumentProblem(f"`{place}`: names beginning with {_RESERVED_PREFIX} are reserved")
        _bounded(item, place, MAX_STRING_BYTES - len(name) - 1)
    return value


def _secrets(value: Any, env: Mapping[str, str]) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_SECRETS:
        raise ArgumentProblem(f"`secrets` must be a list of at most {MAX_SECRETS} names")
    for index, name in enumerate(value):
        if not isinstance(name, str) or not ENV_NAME.fullmatch(name) or len(name) > 64:
            raise ArgumentProblem(f"`secrets[{index}]` is no name")
        if name in env:
            raise ArgumentProblem(f"`secrets[{index}]`: `{name}` also stands in `env`")
    if len(set(value)) != len(value):
        raise ArgumentProblem("`secrets` has a name twice")
    return tuple(sorted(value))


def _timeout(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_TIMEOUT_MS:
        raise ArgumentProblem(f"`timeout_ms` must be a whole number from 1 to {MAX_TIMEOUT_MS}")
    return value


def _bounded(value: Any, place: str, limit: int) -> str:
    if not isinstance(value, str):
        raise ArgumentProblem(f"`{place}` must be text")
    if _size(value) > limit:
        raise ArgumentProblem(f"`{place}` is larger than {limit} bytes")
    return value


def _size(text: str) -> int:
    return len(text.encode())
