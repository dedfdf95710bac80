"""Conforms, and floods standard output and standard error with junk, very long lines included."""

import os
from collections.abc import Mapping
from typing import Any

from tyrum_conformance.broken._base import GoodProvider
from tyrum_provider_kit import Environment, ProbeReport, run

LONG_LINE = b"x" * 1_048_576 + b"\n"
JUNK = b"1|2|unix|/tmp/not-a-handshake|grpc\n\x00\xff\xfe\x1b[2J\r\n" + LONG_LINE


def flood() -> None:
    """Write junk to both, in full even when the reader is slow."""
    for descriptor in (1, 2):
        left = JUNK
        while left:
            left = left[os.write(descriptor, left) :]


class Noisy(GoodProvider):
    """Deviates in one member."""

    async def configure(
        self, config: Mapping[str, Any], secrets: Mapping[str, str], environment: Environment
    ) -> str:
        """Flood."""
        flood()
        return await super().configure(config, secrets, environment)

    async def probe(self, *, deep: bool) -> ProbeReport:
        """Flood."""
        flood()
        return ProbeReport(ready=True)


def main() -> int:
    """Serve."""
    flood()
    return run(Noisy())
