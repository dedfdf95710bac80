"""One database transaction of the writing thread: what a job reads and changes goes through here.

Invariants: rows that nothing in the transaction reads are inserted together, in an order that every foreign
key permits, and before the transaction ends; the audit chain continues from the head that the transaction
itself has read, so that a rollback takes it back too (ARCH-22).
"""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

from tyrum_gateway.domain.audit import GENESIS
from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.storage import rows
from tyrum_gateway.storage.inserts import (
    AUDIT,
    BINDINGS,
    CALLS,
    CHECKPOINTS,
    EVENTS,
    EVIDENCE,
    ROWS,
    Insert,
    Row,
)
from tyrum_gateway.storage.statements import AUDIT_HEAD, Statement

_ORDER: Final = (BINDINGS, CALLS, EVIDENCE, EVENTS, CHECKPOINTS, AUDIT)
_audit_row = attrgetter(*AUDIT.columns)


class Transaction:
    """What the jobs of one transaction share; each statement hands the interpreter over, so few are good."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._waiting: dict[Insert, list[Row]] = {insert: [] for insert in _ORDER}
        self._count = 0
        self._head: tuple[int, str] | None = None

    @property
    def changes(self) -> int:
        """A number that grows with every change."""
        return self.connection.total_changes + self._count

    def run(self, statement: Statement, values: Mapping[str, Any]) -> sqlite3.Cursor:
        """Execute a statement at once; it does not see rows that wait, see `flush`."""
        return statement.run(self.connection, values)

    def insert(self, into: Insert, values: Sequence[Mapping[str, Any]]) -> None:
        """Have rows inserted when the transaction ends, or at `flush`; a column per key."""
        if values:
            self._waiting[into] += map(into.row, values)
            self._count += len(values)

    def audit(self, entries: Sequence[AuditEntry], at: datetime) -> None:
        """Append to the audit log."""
        if not entries:
            return
        sequence, previous = self._head or self._stored_head()
        waiting = self._waiting[AUDIT]
        for entry in entries:
            sequence += 1
            row = rows.audit_row(entry, at, sequence=sequence, previous=previous)
            previous = row.hash
            waiting.append(_audit_row(row))
        self._head = sequence, previous
        self._count += len(entries)

    def flush(self) -> None:
        """Insert what waits, so that it can be read and referred to.

        Raises:
            sqlite3.IntegrityError: A row breaks a rule of the schema.
        """
        if not self._count:
            return
        for insert, waiting in self._waiting.items():
            for first in range(0, len(waiting), ROWS):
                insert.run(self.connection, waiting[first : first + ROWS])
            waiting.clear()
        self._count = 0

    def discard(self) -> None:
        """Forget what waits, and the audit head, after a rollback."""
        for waiting in self._waiting.values():
            waiting.clear()
        self._count = 0
        self._head = None

    def _stored_head(self) -> tuple[int, str]:
        found = self.run(AUDIT_HEAD, {}).fetchone()
        return (0, GENESIS) if found is None else (found["sequence"], found["hash"])
