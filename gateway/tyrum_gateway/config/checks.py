"""What the file must mean as a whole: references lead somewhere, secrets exist, rules are not too wide.

The checks read the positioned tree rather than the typed model, so that they all run whatever else is wrong.
Values are never repeated; suggestions come from the names that the file declares.
"""

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath

from tyrum_gateway.config import document
from tyrum_gateway.config.document import Node, Scalar, Sequence, descend
from tyrum_gateway.config.problems import Path, Place, Problem, did_you_mean, show_key
from tyrum_gateway.config.secrets import SecretReference, SecretUnavailable

_NAMED = 20
"""Declared names that a problem lists."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the file refers to outside itself."""

    file: str
    """As named in problems."""
    directory: FilePath
    """Where relative paths of the file start."""
    environment: Mapping[str, str]


def check(root: document.Mapping, around: Surroundings) -> Iterator[Problem]:
    """List every problem that lies between parts of the file, or between the file and the machine."""
    yield from _interpolation(root, around.file)
    yield from _references(root, around.file)
    yield from _claims(root, around.file)
    yield from _secrets(root, around)
    yield from _repetitions(root, around.file)
    yield from _rules(root, around.file)
    yield from _programs(root, around)
    yield from _scripts(root, around)


def find_program(name: str, environment: Mapping[str, str]) -> str | None:
    """Resolve a program: a name is sought beside the running interpreter, then on PATH."""
    if "/" in name:
        return shutil.which(name)
    beside = shutil.which(name, path=str(FilePath(sys.executable).parent))
    return beside or shutil.which(name, path=environment.get("PATH", "/usr/local/bin:/usr/bin:/bin"))


def _walk(node: Node, path: Path = ()) -> Iterator[tuple[Path, Place, str, bool]]:
    """Visit every text with its path and place, and whether it is a key."""
    match node:
        case Scalar(place=place, value=str() as text):
            yield path, place, text, False
        case Sequence(items=items):
            for index, item in enumerate(items):
                yield from _walk(item, (*path, index))
        case document.Mapping(entries=entries):
            for key, entry in entries.items():
                yield (*path, key), entry.place, key, True
                yield from _walk(entry.value, (*path, key))
        case _:
            return


def _interpolation(root: document.Mapping, file: str) -> Iterator[Problem]:
    for path, place, text, is_key in _walk(root):
        opening = text.find("${")
        if opening < 0 or "}" not in text[opening:]:
            continue
        if path[0] != "secrets" or len(path) != 2 or is_key:
            message = "`${…}` is only read under `secrets`; declare a secret there and refer to it by name"
            yield Problem(file, place, path, "interpolation", message)


def _names(root: document.Mapping, *path: str) -> list[str]:
    node = descend(root, *path)
    return list(node.entries) if isinstance(node, document.Mapping) else []


def _select(node: Node | None, pattern: tuple[str, ...], path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Find the nodes at `pattern`, in which `*` stands for every key or item."""
    if node is None:
        return
    if not pattern:
        yield path, node
        return
    step, rest = pattern[0], pattern[1:]
    match node:
        case document.Mapping(entries=entries):
            for key in list(entries) if step == "*" else [step]:
                yield from _select(descend(node, key), rest, (*path, key))
        case Sequence(items=items) if step == "*":
            for index, item in enumerate(items):
                yield from _select(item, rest, (*path, index))
        case _:
            return


_REFERENCES: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("agents", "*", "model"), ("models",), "model"),
    (("agents", "*", "policy"), ("policy",), "policy bundle"),
    (("agents", "*", "secrets", "*"), ("secrets",), "secret"),
    (("agents", "*", "profiles", "isolation"), ("profiles", "isolation"), "isolation profile"),
    (("profiles", "isolation", "*", "provider"), ("providers",), "provider"),
    (("providers", "*", "secrets", "*"), ("secrets",), "secret"),
    (("policy", "*", "rules", "*", "match", "secrets", "*"), ("secrets",), "secret"),
)


def _references(root: document.Mapping, file: str) -> Iterator[Problem]:
    for source, target, noun in _REFERENCES:
        known = _names(root, *target)
        for path, node in _select(root, source):
            if isinstance(node, Scalar) and isinstance(node.value, str) and node.value not in known:
                hint = did_you_mean(node.value, known) or f"; `{'.'.join(target)}` declares {_listed(known)}"
                yield Problem(
                    file, node.place, path, "dangling_reference", f"no {noun} of this name is declared{hint}"
                )


def _listed(names: Iterable[str]) -> str:
    shown = [show_key(name).strip('"') for name in names]
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return ", ".join(f"`{name}`" for name in shown[:_NAMED]) + more if shown else "none"


def _claims(root: document.Mapping, file: str) -> Iterator[Problem]:
    for path, node in _select(root, ("profiles", "isolation", "*", "required_claims", "*")):
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            continue
        from tyrum_provider_host.claims import CLAIMS  # noqa: PLC0415 - loads gRPC, and most files need none

        if node.value not in CLAIMS:
            hint = did_you_mean(node.value, CLAIMS) or f"; the claims are {_listed(CLAIMS)}"
            yield Problem(
                file, node.place, path, "unknown_claim", f"no claim of this name is registered{hint}"
            )


def _secrets(root: document.Mapping, around: Surroundings) -> Iterator[Problem]:
    for path, node in _select(root, ("secrets", "*")):
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            continue
        try:
            reference = SecretReference.parse(
                node.value, environment=around.environment, directory=around.directory
            )
        except ValueError as error:
            yield Problem(around.file, node.place, path, "secret_reference", str(error))
            continue
        try:
            reference.resolve()
        except SecretUnavailable as error:
            yield Problem(around.file, node.place, path, "secret_unavailable", str(error))


_SETS: tuple[tuple[str, ...], ...] = (
    ("agents", "*", "secrets"),
    ("profiles", "isolation", "*", "path"),
    ("profiles", "isolation", "*", "required_claims"),
    ("policy", "*", "rules", "*", "match", "env"),
    ("policy", "*", "rules", "*", "match", "secrets"),
)


def _repetitions(root: document.Mapping, file: str) -> Iterator[Problem]:
    for source in _SETS:
        for path, node in _select(root, source):
            items = node.items if isinstance(node, Sequence) else ()
            seen: set[object] = set()
            for index, item in enumerate(items):
                if isinstance(item, Scalar):
                    if item.value in seen:
                        yield Problem(file, item.place, (*path, index), "repeated", "listed twice")
                    seen.add(item.value)


def _rules(root: document.Mapping, file: str) -> Iterator[Problem]:
    for bundle, rules in _select(root, ("policy", "*", "rules")):
        ids: dict[str, Place] = {}
        for path, rule in _select(rules, ("*",), bundle):
            if not isinstance(rule, document.Mapping):
                continue
            identity = rule.entries.get("id")
            if identity is not None and isinstance(identity.value, Scalar):
                name, place = str(identity.value.value), identity.value.place
                if name in ids:
                    message = f"a rule of this id is at {ids[name]}; ids are unique in a bundle"
                    yield Problem(file, place, (*path, "id"), "repeated", message)
                ids.setdefault(name, place)
            yield from _rule(rule, path, file)


def _rule(rule: document.Mapping, path: Path, file: str) -> Iterator[Problem]:
    match = rule.entries.get("match")
    if match is None or not isinstance(match.value, document.Mapping):
        return
    conditions = match.value.entries
    tool, effect = _text(match.value, "tool"), _text(match.value, "effect")
    program = _text(match.value, "program")
    if program is not None and (real := _behind_link(program)) is not None:
        message = f"a link never matches: programs are resolved first, and this one is `{real}`"
        yield Problem(file, conditions["program"].value.place, (*path, "match", "program"), "link", message)
    if tool == "process.run" and effect == "read_only":
        message = "`process.run` is state_changing: this rule can never match"
        yield Problem(file, conditions["effect"].place, (*path, "match", "effect"), "never_matches", message)
    if "rest" in conditions and "argv" not in conditions:
        message = "`rest` extends `argv`; without `argv` any arguments match"
        yield Problem(file, conditions["rest"].place, (*path, "match", "rest"), "no_effect", message)
    decision = rule.entries.get("decision")
    if decision is None or _text(rule, "decision") != "allow":
        for key in ("env", "stdin", "secrets"):
            if key in conditions:
                message = f"`{key}` widens an allow rule; on any other it has no effect"
                yield Problem(file, conditions[key].place, (*path, "match", key), "no_effect", message)
        return
    if effect == "read_only":
        return
    if "author" not in rule.entries:
        message = (
            "an allow on a state-changing target is a standing approval; say in `author` who answers for it"
        )
        yield Problem(file, decision.place, path, "author_required", message)
    for key, why in (("tool", "which tool"), ("program", "which program, as an absolute path")):
        if key not in conditions:
            message = f"this allow is too wide: `match.{key}` must say {why}"
            yield Problem(file, match.place, (*path, "match"), "too_wide", message)


def _behind_link(program: str) -> str | None:
    """Return what a link to an existing program leads to; None for anything else."""
    try:
        real = FilePath(program).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        return None
    return None if not program.startswith("/") or FilePath(program) == real else str(real)


def _text(node: document.Mapping, key: str) -> str | None:
    found = descend(node, key)
    return found.value if isinstance(found, Scalar) and isinstance(found.value, str) else None


def _programs(root: document.Mapping, around: Surroundings) -> Iterator[Problem]:
    for path, node in _select(root, ("providers", "*", "command")):
        program = descend(node, 0)
        if not isinstance(program, Scalar) or not isinstance(program.value, str) or not program.value:
            continue
        name = program.value
        if ("/" not in name or name.startswith("/")) and find_program(name, around.environment) is None:
            message = (
                "this program does not exist or is not executable"
                if "/" in name
                else "no such program beside the gateway's interpreter or on PATH"
            )
            yield Problem(around.file, program.place, (*path, 0), "program_not_found", message)


def _scripts(root: document.Mapping, around: Surroundings) -> Iterator[Problem]:
    for path, node in _select(root, ("models", "*", "script")):
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, str) and not (around.directory / value).is_file():
            yield Problem(around.file, node.place, path, "file_not_found", "this file does not exist")
