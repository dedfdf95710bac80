"""Conforms, in a version so old that operators exclude it."""

from dataclasses import replace

from tyrum_conformance.broken._base import DEFINITION, GoodProvider
from tyrum_provider_kit import run


class OldProvider(GoodProvider):
    """Deviates in its definition."""

    definition = replace(DEFINITION, implementation_version="0.0.1")


def main() -> int:
    """Serve."""
    return run(OldProvider())
