"""The repository is laid out as the architecture says, and what is built from it is whole and clean."""

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.repository import ROOT, tracked

ENTRIES = (
    "proto", "gateway", "providers/host", "providers/kit", "providers/local_spawn",
    "providers/bwrap_confined", "providers/memory_builtin", "providers/context_builtin", "conformance",
    "tests", "docs", "examples", "deploy", "benchmarks", "buf.yaml", "pyproject.toml", "Makefile",
    ".ci/run", "README.md", "LICENSE", "SCOPE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md",
)  # fmt: skip
LONGEST_MODULE = 400
TOO_LONG: dict[str, str] = {}
"""Modules that are longer, each with what is to become of it; one that was split leaves the list."""
NO_NOUNS = re.compile(r"utils?|helpers?|managers?|common|misc")
FOREIGN = re.compile(
    r"(?<![\w.])(?:/home/\w|/root/|/Users/\w)"  # where somebody works
    r"|\bhttps?://[^\s\"'`)]*(?:pypi|/simple\b|registry\.npm)"  # where somebody installs from
    r"|^\s*\"resolved\":",
    re.MULTILINE,
)
PLANTED = {
    "conformance/tyrum_conformance/broken/error_without_info.py": "an exception's text, not to travel",
}
"""Files whose path of a developer's machine is their point, and what it stands for."""


@cache
def project() -> dict[str, Any]:
    """Read pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def modules() -> Iterator[Path]:
    """List the modules that somebody wrote, tests left out."""
    for path in tracked():
        if (
            path.suffix == ".py"
            and path.parts[0] != "tests"
            and not re.search(r"_pb2(_grpc)?\.py$", path.name)
        ):
            yield path


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_of_the_layout_is_there(entry: str) -> None:
    """Each directory holds committed files, a README at least, and each file is committed."""
    files = [path.as_posix() for path in tracked()]
    if (ROOT / entry).is_dir():
        assert any(path.startswith(f"{entry}/") for path in files)
    else:
        assert entry in files


def test_a_planned_provider_pretends_nothing() -> None:
    """A provider that is not built yet is a README that says so, without a module or a console script."""
    scripts = project()["project"]["scripts"].values()
    for name in ("bwrap_confined", "memory_builtin", "context_builtin"):
        if "not built yet" in (ROOT / "providers" / name / "README.md").read_text(encoding="utf-8"):
            assert [path.name for path in tracked() if path.parts[:2] == ("providers", name)] == ["README.md"]
            assert not [target for target in scripts if target.startswith(f"tyrum_{name}.")]


def test_modules_stay_small() -> None:
    """No module outgrows what CONTRIBUTING allows, and no exception outlives its reason."""
    long = {
        path.as_posix()
        for path in modules()
        if len((ROOT / path).read_text(encoding="utf-8").splitlines()) > LONGEST_MODULE
    }
    assert long == set(TOO_LONG), "split it, or take it off the list when it was"


def test_modules_are_nouns_of_the_domain() -> None:
    """No module or package is called after nothing in particular."""
    assert [
        str(path) for path in modules() if any(NO_NOUNS.fullmatch(Path(part).stem) for part in path.parts)
    ] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cd /home/ada/src", True),
        ('"/root/.cache"', True),
        ("--index-url https://mirror.example/pypi/simple", True),
        ('    "resolved": "https://example.org/x.tgz"', True),
        ("https://registry.npmjs.org/x", True),
        ("~/.local/state and /var/lib/tyrum", False),
        ("state/root/x", False),
        ("omit-lockfile-registry-resolved=true", False),
    ],
)
def test_foreign_places_are_recognised(text: str, found: bool) -> None:
    """A home directory or registry is told from what only looks like one."""
    assert bool(FOREIGN.search(text)) is found


def test_no_file_names_a_developers_machine_or_a_registry() -> None:
    """What is committed works for everybody: no home directory, no registry's address, no resolved URL."""
    found = []
    for path in tracked():
        content = (ROOT / path).read_bytes()
        if path.as_posix() != Path(__file__).relative_to(ROOT).as_posix() and b"\0" not in content:
            found += [(path.as_posix(), hit[0]) for hit in FOREIGN.finditer(content.decode())]
    assert {path for path, _ in found} == set(PLANTED), found


def locked() -> dict[str, str]:
    """Read the lock: canonical name to version; a line in another form fails."""
    found: dict[str, str] = {}
    for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines():
        pinned = re.fullmatch(r"([A-Za-z0-9][\w.-]*)==([0-9][\w.!+-]*)", line)
        assert pinned, f"requirements.lock: not NAME==VERSION: {line}"
        found[canonicalize_name(pinned[1])] = pinned[2]
    return found


def test_the_lock_pins_what_the_project_asks_for() -> None:
    """Every direct dependency, those of developers and of the build too, is pinned to a version that fits."""
    asked = [*project()["project"]["dependencies"], *project()["build-system"]["requires"]]
    for extra in project()["project"]["optional-dependencies"].values():
        asked += extra
    pins = locked()
    assert len(asked) > 20
    for requirement in map(Requirement, asked):
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"`{requirement.name}` is not in requirements.lock: make lock"
        assert requirement.specifier.contains(version), f"{requirement} is pinned to {version}: make lock"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel of this tree."""
    directory = tmp_path_factory.mktemp("wheel")
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(directory), versions=["standard"])
    with zipfile.ZipFile(built) as archive:
        archive.extractall(directory / "unpacked")
    return directory / "unpacked"


def test_the_wheel_holds_what_runs_and_nothing_else(wheel: Path) -> None:
    """Contracts, digests, vectors and quickstart are in it; tests, documents and build leftovers are not."""
    files = {path.relative_to(wheel).as_posix() for path in wheel.rglob("*") if path.is_file()}
    protos = {path.relative_to("proto").as_posix() for path in tracked() if path.suffix == ".proto"}
    assert len(protos) > 5
    assert files >= protos | {
        "tyrum/contracts/digests.json",
        "tyrum/contracts/handshake-vectors.json",
        "tyrum/contracts/image.binpb",
        "tyrum_gateway/config/quickstart.yaml",
        "tyrum_gateway/py.typed",
    }
    committed = {path.as_posix() for path in tracked()}
    packages = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    roots = [Path(entry).parent for entry in packages]
    code = {name for name in files if ".dist-info/" not in name}
    strays = [name for name in code if not any((root / name).as_posix() in committed for root in roots)]
    assert strays == []
    assert not [name for name in code if "test" in Path(name).parts[0] or name.endswith(".md")]


def test_the_console_scripts_of_the_wheel_start(wheel: Path) -> None:
    """Every entry point can be imported from the wheel alone, not from the checkout."""
    (metadata,) = wheel.glob("*.dist-info/entry_points.txt")
    targets = re.findall(r"^([\w-]+) = ([\w.]+):(\w+)$", metadata.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for name, _, _ in targets} == set(project()["project"]["scripts"])
    program = "import importlib, sys; sys.path.insert(0, sys.argv[1])\n"
    for _, module, name in targets:
        program += f"module = importlib.import_module({module!r})\n"
        program += f"assert callable(module.{name}) and module.__file__.startswith(sys.argv[1]), module\n"
    run = subprocess.run(
        [sys.executable, "-B", "-c", program, str(wheel)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=wheel,
    )
    assert run.returncode == 0, run.stderr
