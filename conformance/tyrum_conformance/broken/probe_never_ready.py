"""Takes its configuration and is never ready."""

from tyrum_conformance.broken._base import GoodProvider
from tyrum_provider_kit import Condition, ConditionStatus, ProbeReport, run


class NeverReady(GoodProvider):
    """Deviates in one member."""

    async def probe(self, *, deep: bool) -> ProbeReport:
        """Lack something."""
        lacking = Condition("Backend", ConditionStatus.FALSE, "BACKEND_DOWN", "the backend does not answer")
        return ProbeReport(ready=False, conditions=(lacking,))


def main() -> int:
    """Serve."""
    return run(NeverReady())
