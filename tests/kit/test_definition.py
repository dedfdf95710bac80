"""Definitions are held to the descriptor's limits where they are written."""

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


def test_descriptor_is_stable() -> None:
    """The descriptor is the same bytes every time it is built."""
    first, second = (descriptor_message(SampleProvider.definition).SerializeToString() for _ in range(2))
    assert first == second
