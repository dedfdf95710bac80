"""A conforming provider that is ready only while the file named by its argument does not exist."""

import sys
from pathlib import Path

from tyrum_conformance.broken._base import GoodProvider
from tyrum_provider_kit import ProbeReport, run

SWITCH = Path(sys.argv[1])


class Flaky(GoodProvider):
    """Deviates in its probe."""

    async def probe(self, *, deep: bool) -> ProbeReport:
        """Follow the file."""
        return ProbeReport(ready=not SWITCH.exists())  # noqa: ASYNC240


if __name__ == "__main__":
    sys.exit(run(Flaky()))
