"""Claims nothing but UNKNOWN, which never counts as true."""

from tyrum_conformance.broken._base import GoodProvider
from tyrum_provider_kit import Condition, ConditionStatus, ProbeReport, run


class UnknownState(GoodProvider):
    """Deviates in one member."""

    async def probe(self, *, deep: bool) -> ProbeReport:
        """Claim to be ready although the condition was not observed."""
        unseen = Condition("Backend", ConditionStatus.UNKNOWN, "NOT_OBSERVED", "the backend was not asked")
        return ProbeReport(ready=True, conditions=(unseen,))


def main() -> int:
    """Serve."""
    return run(UnknownState())
