"""What the file must mean as a whole: references lead somewhere, secrets exist, rules are not too wide.

The checks read the positioned tree rather than the typed model, so that they all run whatever else is wrong.
Values are never repeated; suggestions come from the names that the file declares.
"""

import importlib.util
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath

from tyrum_gateway.config import document
from tyrum_gateway.config.document import Node, Scalar, Sequence, descend, select
from tyrum_gateway.config.instructions import instructions
from tyrum_gateway.config.listening import listening
from tyrum_gateway.config.problems import Path, Place, Problem, did_you_mean, show_key
from tyrum_gateway.config.proxies import proxies
from tyrum_gateway.config.rules import rules
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


_SDKS = ("openai", "anthropic")
"""Kinds of models that need the package of their name, an extra of this one."""


def check(root: document.Mapping, around: Surroundings) -> Iterator[Problem]:
    """List every problem that lies between parts of the file, or between the file and the machine."""
    yield from _interpolation(root, around.file)
    yield from _references(root, around.file)
    yield from _claims(root, around.file)
    yield from _secrets(root, around)
    yield from _repetitions(root, around.file)
    yield from rules(root, around.file)
    yield from listening(root, around.file)
    yield from _programs(root, around)
    yield from _scripts(root, around)
    yield from instructions(root, around.file, around.directory)
    yield from _extras(root, around.file)
    yield from _authorities(root, around.file)
    yield from proxies(root, around.file)


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
            named = "secrets" in path or path[-1] in {"api_key", "proxy_login"}
            how = "declare a secret there and refer to it by name" if named else "here a value is written out"
            if path[0] == "models" and path[-1] == "proxy":
                how = "write the address out; a login for it goes into the secret that `proxy_login` names"
            yield Problem(file, place, path, "interpolation", f"`${{…}}` is only read under `secrets`; {how}")


def _names(root: document.Mapping, *path: str) -> list[str]:
    node = descend(root, *path)
    return list(node.entries) if isinstance(node, document.Mapping) else []


_REFERENCES: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("models", "*", "api_key"), ("secrets",), "secret"),
    (("models", "*", "proxy_login"), ("secrets",), "secret"),
    (("agents", "*", "model"), ("models",), "model"),
    (("agents", "*", "model", "*"), ("models",), "model"),
    (("agents", "*", "policy"), ("policy",), "policy bundle"),
    (("agents", "*", "secrets", "*"), ("secrets",), "secret"),
    (("agents", "*", "profiles", "isolation"), ("profiles", "isolation"), "isolation profile"),
    (("profiles", "isolation", "*", "provider"), ("providers",), "provider"),
    (("providers", "*", "secrets", "*"), ("secrets",), "secret"),
    (("policy", "*", "rules", "*", "match", "secrets", "*"), ("secrets",), "secret"),
    (("policy", "*", "rules", "*", "match", "agent"), ("agents",), "agent"),
)


def _references(root: document.Mapping, file: str) -> Iterator[Problem]:
    for source, target, noun in _REFERENCES:
        known = _names(root, *target)
        for path, node in select(root, source):
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
    for path, node in select(root, ("profiles", "isolation", "*", "required_claims", "*")):
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            continue
        from tyrum_provider_host.claims import CLAIMS  # noqa: PLC0415 - loads gRPC, and most files need none

        if node.value not in CLAIMS:
            hint = did_you_mean(node.value, CLAIMS) or f"; the claims are {_listed(CLAIMS)}"
            yield Problem(
                file, node.place, path, "unknown_claim", f"no claim of this name is registered{hint}"
            )


def _secrets(root: document.Mapping, around: Surroundings) -> Iterator[Problem]:
    for path, node in select(root, ("secrets", "*")):
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
    ("agents", "*", "model"),
    ("agents", "*", "secrets"),
    ("profiles", "isolation", "*", "path"),
    ("profiles", "isolation", "*", "required_claims"),
    ("policy", "*", "rules", "*", "match", "env"),
    ("policy", "*", "rules", "*", "match", "secrets"),
)


def _repetitions(root: document.Mapping, file: str) -> Iterator[Problem]:
    for source in _SETS:
        for path, node in select(root, source):
            items = node.items if isinstance(node, Sequence) else ()
            seen: set[object] = set()
            for index, item in enumerate(items):
                if isinstance(item, Scalar):
                    if item.value in seen:
                        yield Problem(file, item.place, (*path, index), "repeated", "listed twice")
                    seen.add(item.value)


def _programs(root: document.Mapping, around: Surroundings) -> Iterator[Problem]:
    for path, node in select(root, ("providers", "*", "command")):
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
    for path, node in select(root, ("models", "*", "script")):
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, str) and not (around.directory / value).is_file():
            yield Problem(around.file, node.place, path, "file_not_found", "this file does not exist")


def _extras(root: document.Mapping, file: str) -> Iterator[Problem]:
    for path, node in select(root, ("models", "*", "kind")):
        kind = node.value if isinstance(node, Scalar) else None
        if isinstance(kind, str) and kind in _SDKS and importlib.util.find_spec(kind) is None:
            message = (
                "this kind needs a package that is not installed: in the checkout, "
                f"pip install '.[{kind}]'; with a wheel, pip install './FILE.whl[{kind}]'"
            )
            yield Problem(file, node.place, path, "package_missing", message)


def _authorities(root: document.Mapping, file: str) -> Iterator[Problem]:
    for path, node in select(root, ("models", "*", "ca_file")):
        url = descend(root, *path[:-1], "base_url")
        if isinstance(url, Scalar) and isinstance(url.value, str) and url.value.startswith("http:"):
            message = "a server without TLS shows no certificate; with this `base_url` it has no effect"
            yield Problem(file, node.place, path, "no_effect", message)
