"""How long a step waits between a failed attempt and the next one.

Invariant: never longer than `LONGEST_SECONDS`, whatever a model's server asks for. The wait is held in memory
only: rows cannot tell it from an attempt that has begun, so a restart costs the one that was due, and the
next begins at once.
"""

from datetime import timedelta
from random import SystemRandom

LONGEST_SECONDS = 60.0
"""The longest wait that a model's server can ask for."""
FIRST_SECONDS = 0.5
MOST_SECONDS = 8.0
"""The first and the longest wait when it asks for none."""

_random = SystemRandom()


def pause_seconds(attempt: int, retry_after: timedelta | None) -> float:
    """Return the seconds to wait.

    Args:
        attempt: The one that failed, from 1. The wait doubles with each, and its second half is random, so
            that many conversations do not come back at the same moment.
        retry_after: What the model's server asks for; waited for as it is, within the bound.
    """
    if retry_after is not None:
        return min(max(retry_after.total_seconds(), 0.0), LONGEST_SECONDS)
    longest = min(FIRST_SECONDS * 2.0 ** min(attempt - 1, 10), MOST_SECONDS)
    return _random.uniform(longest / 2, longest)
