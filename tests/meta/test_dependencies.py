"""What the package asks for is what it uses."""

import ast
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.repository import ROOT, tracked

PRODUCT = ("gateway/", "providers/", "conformance/", "proto/tyrum/")
TYPES_ONLY = {"types-protobuf"}
"""Needed by those who type-check against the package, and imported by nobody."""

GOOGLE = {"google.protobuf": "protobuf", "google.rpc": "googleapis-common-protos"}
"""Distributions that share the name `google`, by their part of it."""

FOR_TESTS = ("grpcio-tools", "pytest", "pytest-grpc")
"""Named by the design beside the run-time ones; the first generates the contracts' code."""


def imported(prefixes: Iterable[str]) -> set[str]:
    """Find the distributions whose modules are imported by name in Python files below the prefixes."""
    names: set[str] = set()
    for path in tracked():
        if path.suffix == ".py" and path.as_posix().startswith(tuple(prefixes)):
            for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
                match node:
                    case ast.Import(names=aliases):
                        names |= {alias.name for alias in aliases}
                    case ast.ImportFrom(module=str(module), level=0):
                        names.add(module)
                    case _:
                        pass
    distributions = packages_distributions()
    roots = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
    found = {canonicalize_name(item) for root in roots - {"google"} for item in distributions.get(root, ())}
    for prefix, name in GOOGLE.items():
        if any(module.startswith(prefix) for module in names):
            found.add(canonicalize_name(name))
    return {str(name) for name in found}


def declared(extra: str | None = None) -> set[str]:
    """The names of the run-time dependencies, or of an extra's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return {str(canonicalize_name(Requirement(item).name)) for item in listed}


def test_run_time_dependencies_are_those_that_are_imported() -> None:
    """The product imports each distribution that it asks for, and none that it does not ask for."""
    found = imported(PRODUCT) - {"tyrum"}
    optional = declared("openai") | declared("anthropic")
    assert (declared() | optional) - TYPES_ONLY - found == set()
    assert found - declared() - optional == set()
    assert not declared() & optional


@pytest.mark.parametrize("name", FOR_TESTS)
def test_the_tools_of_the_design_are_used(name: str) -> None:
    """Generator and test tools that the design names are at work, not only installed."""
    words = {"grpcio-tools": "from grpc_tools", "pytest": "import pytest", "pytest-grpc": "def grpc_addr"}
    uses = [
        path
        for path in tracked()
        if path.suffix == ".py"
        and path.name != "test_dependencies.py"
        and words[name] in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert uses
