"""Finds fault with every configuration."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from tyrum_conformance.broken._base import GoodProvider
from tyrum_provider_kit import Violation, run


class RejectsConfig(GoodProvider):
    """Deviates in one member."""

    def check(self, config: Mapping[str, Any], slots: Set[str]) -> Sequence[Violation]:
        """Find fault."""
        return (Violation("", "mood", "no configuration pleases this provider"),)


def main() -> int:
    """Serve."""
    return run(RejectsConfig())
