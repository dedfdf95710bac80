"""Conforms: what the others are compared with."""

from tyrum_conformance.broken._base import GoodProvider
from tyrum_provider_kit import run


def main() -> int:
    """Serve."""
    return run(GoodProvider())
