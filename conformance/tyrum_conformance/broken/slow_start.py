"""Conforms, two seconds late."""

import time

from tyrum_conformance.broken._base import GoodProvider
from tyrum_provider_kit import run

SECONDS = 2.0


def main() -> int:
    """Serve, after a while."""
    time.sleep(SECONDS)
    return run(GoodProvider())
