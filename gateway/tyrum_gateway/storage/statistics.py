"""What a store has done so far, so that the cost of a turn can be stated as constants."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of the counters of one open store."""

    commits: int
    """Writes that changed something: accepted messages, commits, principals."""
    transactions: int
    """Database transactions that carried them; fewer than commits when writers came together."""
    reads: int
    """Calls of reading methods."""
    rows_read: int
    """Rows that reading methods fetched."""
