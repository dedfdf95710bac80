"""Was built from a contract this host does not know, and says so honestly with CONTRACT_INCOMPATIBLE."""

from dataclasses import fields, replace

from tyrum_conformance.broken._base import DEFINITION, GoodProvider
from tyrum_provider_kit import ProviderDefinition, run
from tyrum_provider_kit.definition import Contract, installed_contract


class FutureDefinition(ProviderDefinition):
    """Speaks the next major of the contract only."""

    @property
    def contract(self) -> Contract:
        """A contract nobody has written yet."""
        present = installed_contract(self.kind)
        return replace(present, major=present.major + 1, digest="sha256:" + "f" * 64)


class FutureProvider(GoodProvider):
    """Deviates in its contract."""

    definition = FutureDefinition(
        **{field.name: getattr(DEFINITION, field.name) for field in fields(DEFINITION)}
    )


def main() -> int:
    """Serve."""
    return run(FutureProvider())
