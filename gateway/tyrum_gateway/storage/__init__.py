"""The durable truth in one SQLite file: one writer with group commit, query-only readers (ARCH-29).

Invariant: exactly one connection of the gateway writes to the file, and an acknowledged write survives a
crash of the process and of the machine.
"""

from tyrum_gateway.storage.statistics import Statistics
from tyrum_gateway.storage.store import SqliteStore

__all__ = ["SqliteStore", "Statistics"]
