"""Whether an instance counts as healthy, from the checks seen so far.

Invariant: health is gained by two good checks in a row and lost by three bad ones in a row, so that neither a
lucky nor an unlucky single check changes it; what was not observed is unknown, never true.
"""

from dataclasses import dataclass, replace

GOOD_CHECKS_TO_GAIN = 2
MISSES_TO_LOSE = 3


@dataclass(frozen=True, slots=True)
class HealthRecord:
    """What the last checks said about one instance."""

    healthy: bool | None = None
    good_in_row: int = 0
    misses_in_row: int = 0
    detail: str = "not checked yet"

    def good(self) -> "HealthRecord":
        """Record a check that answered SERVING and ready."""
        streak = self.good_in_row + 1
        return HealthRecord(
            healthy=True if streak >= GOOD_CHECKS_TO_GAIN else self.healthy,
            good_in_row=streak,
            # Without a count: what operators read should change when something changes.
            detail="the last check answered SERVING" if streak == 1 else "the last checks answered SERVING",
        )

    def miss(self, why: str) -> "HealthRecord":
        """Record a check that failed; `why` is shown to operators."""
        misses = self.misses_in_row + 1
        return replace(
            self,
            healthy=False if misses >= MISSES_TO_LOSE else self.healthy,
            good_in_row=0,
            misses_in_row=misses,
            detail=f"{misses} missed in a row: {why}",
        )
