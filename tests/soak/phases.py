"""In which phases turns and provider were when something was killed, read from what the dead left behind."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

QUEUED = "queued"
HYDRATING = "hydrating"
GENERATING = "generating"
DECIDING = "deciding"
WAITING = "waiting approval"
LAUNCHING = "launching"
EXECUTING = "executing"
SETTLING = "settling"
IDLE = "provider idle"
BUSY = "provider executing"
RESTARTING = "provider restarting"

PHASES = (
    QUEUED, HYDRATING, GENERATING, DECIDING, WAITING, LAUNCHING, EXECUTING, SETTLING, IDLE, BUSY, RESTARTING,
)  # fmt: skip

_OPEN = """\
SELECT turns.turn_id, turns.request_id, turns.state,
       EXISTS (SELECT 1 FROM calls WHERE calls.turn_id = turns.turn_id AND calls.step = turns.step
               AND calls.state = 'executing') AS executing,
       EXISTS (SELECT 1 FROM calls WHERE calls.turn_id = turns.turn_id AND calls.step = turns.step
               AND calls.state IN ('permitted', 'awaiting_approval')) AS permitted
FROM turns WHERE turns.ended_at IS NULL
"""
_NOT_IN_ROWS = frozenset({HYDRATING, GENERATING, DECIDING, SETTLING})


class HeldUp(Exception):
    """A gateway that stands still holds the database: it was stopped in the middle of a commit."""


@contextmanager
def reading(database: Path) -> Iterator[sqlite3.Connection]:
    """Open a database without leaving anything behind, whether or not a gateway has it open."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def of_turns(database: Path, trace: Path) -> list[str]:
    """Return the phase of every unfinished turn.

    Rows tell all that is durable: queued, waiting, approved but not begun, executing. What a running turn
    does between two commits is in no row; there the last line of the trace about it counts.

    Raises:
        HeldUp: Nobody can read now; known after ten seconds.
    """
    if not database.exists():
        return []
    last = dict(line.split(" ", 1) for line in _lines(trace))
    try:
        with reading(database) as connection:
            return [_phase(row, last) for row in connection.execute(_OPEN)]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL}:
            raise HeldUp from error
        raise


def _phase(row: sqlite3.Row, last: dict[str, str]) -> str:
    if row["state"] == "queued":
        return QUEUED
    if row["state"] == "waiting_approval":
        return WAITING
    traced = last.get(row["request_id"], "")
    if row["executing"]:
        return SETTLING if traced == SETTLING else EXECUTING
    if row["permitted"]:
        return LAUNCHING
    if last.get(row["turn_id"]) == SETTLING:
        return SETTLING
    return traced if traced in _NOT_IN_ROWS - {SETTLING} else HYDRATING


def _lines(trace: Path) -> list[str]:
    text = trace.read_text(encoding="utf-8", errors="replace") if trace.exists() else ""
    return [line for line in text.splitlines() if " " in line]
