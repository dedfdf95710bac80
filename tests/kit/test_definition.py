"""Definitions are held to the descriptor's limits where they are written."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.sample_provider import SampleProvider
from tyrum_provider_kit import Cardinality, ProviderDefinition, SecretSlot
from tyrum_provider_kit.convert import descriptor_message

VALID: dict[str, Any] = {
    "provider_id": "dev.tyrum.x",
    "implementation_version": "1.0.0",
    "kind": "isolation",
    "cardinality": Cardinality.EXCLUSIVE,
    "config_schema": {"type": "object"},
}


@pytest.mark.parametrize(
    "change",
    [
        {"provider_id": "nodots"}, {"provider_id": "Dev.Tyrum"}, {"provider_id": "a." + "b" * 127},
        {"provider_id": "a..b"}, {"implementation_version": "1.0"},
        {"implementation_version": "1.0.0-" + "a" * 60},
        {"kind": "teleport"}, {"config_schema": {"type": "array"}},
        {"secret_slots": (SecretSlot("a"), SecretSlot("a"))},
        {"secret_slots": tuple(SecretSlot(f"s{n}") for n in range(33))},
        {"capabilities": ("Upper",)}, {"capabilities": ("a", "a")}, {"capabilities": ("x" * 65,)},
        {"max_concurrent_operations": 0}, {"handle_versions": tuple(range(17))}, {"handle_versions": (-1,)},
        {"cache_directories": ("../state",)}, {"cache_directories": ("..",)}, {"cache_directories": ("",)},
    ],
    ids=repr,
)  # fmt: skip
def test_broken_limits_are_refused(change: dict[str, Any]) -> None:
    """A definition that the host would refuse cannot be written."""
    ProviderDefinition(**VALID)
    with pytest.raises(ValueError, match=r"\w"):
        ProviderDefinition(**(VALID | change))


@pytest.mark.parametrize(("name", "purpose"), [("", ""), ("Api", ""), ("x" * 65, ""), ("a", "x" * 257)])
def test_broken_slots_are_refused(name: str, purpose: str) -> None:
    """A slot that the host would refuse cannot be written."""
    with pytest.raises(ValueError, match="slot"):
        SecretSlot(name, purpose=purpose)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"implementation_version": "1.0"}, "implementation_version is a semantic version"),
        (
            {"kind": "teleport"},
            "no contract of kind 'teleport' is installed, but those of context, isolation",
        ),
        ({"provider_id": "sandbox"}, "provider_id is a reverse-DNS name"),
        ({"config_schema": {"type": "array"}}, "config_schema must have `type: object`"),
    ],
    ids=repr,
)
def test_a_broken_definition_ends_the_program_with_one_line(
    change: dict[str, Any], rule: str, tmp_path: Path
) -> None:
    """A program whose definition is broken names file, line and rule on stderr and exits with status 2."""
    program = tmp_path / "sandbox.py"
    arguments = ", ".join(f"{name}={value!r}" for name, value in (VALID | change).items())
    program.write_text(
        "from tyrum_provider_kit import Cardinality, ProviderDefinition\n"
        f"ProviderDefinition({arguments.replace(repr(Cardinality.EXCLUSIVE), 'Cardinality.EXCLUSIVE')})\n"
    )
    run = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 2
    assert run.stderr.startswith(f"cannot start: {program}:2: {rule}"), run.stderr
    assert run.stderr.count("\n") == 1
    assert run.stdout == ""


def test_other_errors_keep_their_traceback() -> None:
    """The kit reports its own error in one line and leaves everything else as Python does it."""
    program = "import tyrum_provider_kit\nraise ValueError('mine')"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 1
    assert run.stderr.startswith("Traceback")
    assert run.stderr.endswith("ValueError: mine\n")


def test_descriptor_is_stable() -> None:
    """The descriptor is the same bytes every time it is built."""
    first, second = (descriptor_message(SampleProvider.definition).SerializeToString() for _ in range(2))
    assert first == second
