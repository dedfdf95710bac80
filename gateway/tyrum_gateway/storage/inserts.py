"""Insertions of several rows by one statement.

Invariant: the text of a statement depends on nothing but its number of rows, of which there are at most
`ROWS`, so that each text is prepared once and found again.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Table
from sqlalchemy.dialects.sqlite import Insert as InsertClause
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from tyrum_gateway.storage.tables import audit, bindings, calls, checkpoints, events, evidence

ROWS: Final = 16
"""Rows of one statement at most."""

Row = Sequence[str | int | bytes | None]

_DIALECT = SQLiteDialect_pysqlite(paramstyle="qmark")


@dataclass(frozen=True, slots=True, eq=False)
class Insert:
    """An INSERT of 1 to `ROWS` rows."""

    columns: tuple[str, ...]
    row: Callable[[Mapping[str, Any]], Row]
    """Puts values in the order of the columns."""
    texts: tuple[str, ...]
    """SQL by number of rows, from 1."""

    def run(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
        """Insert rows, at least one and at most `ROWS`."""
        connection.execute(self.texts[len(rows) - 1], [value for row in rows for value in row])


def _several(clause: InsertClause, table: Table) -> Insert:
    columns = tuple(column.name for column in table.columns)
    text = str(clause.compile(dialect=_DIALECT, column_keys=columns))
    row = f"({', '.join('?' * len(columns))})"
    head, tail = text.split(row)
    texts = tuple(f"{head}{', '.join([row] * count)}{tail}" for count in range(1, ROWS + 1))
    return Insert(columns, itemgetter(*columns), texts)


def _saved(table: Table, key: str, *changed: str) -> Insert:
    clause = insert(table)
    return _several(
        clause.on_conflict_do_update(
            index_elements=[key], set_={name: clause.excluded[name] for name in changed}
        ),
        table,
    )


BINDINGS = _several(insert(bindings), bindings)
CALLS = _saved(
    calls, "call_id", "state", "rule_id", "approval_id", "operation_id", "process_id", "binding_id"
)
EVIDENCE = _several(insert(evidence), evidence)
EVENTS = _several(insert(events), events)
CHECKPOINTS = _saved(checkpoints, "conversation_id", "through_turn", "summary")
AUDIT = _several(insert(audit), audit)
