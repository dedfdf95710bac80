"""What must hold whatever was killed, looked up in the database and compared with what people were told."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.soak.people import Notes
from tests.soak.phases import reading
from tyrum.chat.v1 import event_pb2

_COUNTED = (
    "SELECT 'turns ' || state, count(*) FROM turns GROUP BY 1",
    "SELECT 'calls ' || state, count(*) FROM calls GROUP BY 1",
    "SELECT 'approvals ' || outcome, count(*) FROM approvals GROUP BY 1",
)
_OUTCOMES: dict[int, str] = {
    event_pb2.APPROVAL_OUTCOME_APPROVED: "approved",
    event_pb2.APPROVAL_OUTCOME_DENIED: "denied",
}


def violations(database: Path, ran: Path, notes: Notes) -> list[str]:
    """Return everything that does not hold; the lane must be at rest."""
    with reading(database) as connection:
        return [
            *notes.problems,
            *_lost(connection, notes),
            *_doubled(connection, ran),
            *_resolved_twice(connection, notes),
            *_holes(connection, notes),
        ]


def totals(database: Path, ran: Path) -> Counter[str]:
    """Count what the lane has done."""
    with reading(database) as connection:
        counted = Counter({"executions": len(_marks(ran))})
        for query in _COUNTED:
            for name, number in connection.execute(query):
                counted[name] += number
        return counted


def _lost(connection: sqlite3.Connection, notes: Notes) -> Iterator[str]:
    """Accepted messages without a turn, turns without an end, calls without a final state."""
    rows = {row["request_id"]: row for row in connection.execute("SELECT * FROM turns")}
    for request, accepted in notes.accepted.items():
        row = rows.pop(request, None)
        if row is None or row["turn_id"] != accepted.turn_id:
            yield f"lost: message {request} was accepted as {accepted.turn_id} and is not there"
        elif row["ended_at"] is None:
            yield f"lost: turn {row['turn_id']} is {row['state']} and does not end"
    for request in rows:
        yield f"lost: nobody was told that message {request} was accepted"
    for row in connection.execute(
        "SELECT call_id, state FROM calls WHERE state IN "
        "('proposed', 'awaiting_approval', 'permitted', 'executing')"
    ):
        yield f"lost: call {row['call_id']} is {row['state']} for ever"
    for row in connection.execute(
        "SELECT turn_id, count(*) AS number FROM events WHERE kind = 'turn_finished' "
        "GROUP BY turn_id HAVING number > 1"
    ):
        yield f"doubled: turn {row['turn_id']} ended {row['number']} times"


def _marks(ran: Path) -> Counter[str]:
    return Counter(ran.read_text(encoding="utf-8").splitlines()) if ran.exists() else Counter()


def _doubled(connection: sqlite3.Connection, ran: Path) -> Iterator[str]:
    """Commands that ran twice, or other than their call says."""
    marks = _marks(ran)
    for row in connection.execute("SELECT call_id, arguments, state FROM calls"):
        mark = json.loads(row["arguments"])["argv"][1]
        number = marks.pop(mark, 0)
        if number > 1:
            yield f"doubled: {mark} of call {row['call_id']} ran {number} times"
        if row["state"] == "succeeded" and number != 1:
            yield f"doubled: call {row['call_id']} succeeded and {mark} ran {number} times"
        if row["state"] == "denied" and number:
            yield f"doubled: call {row['call_id']} was denied and {mark} ran"
    for mark in marks:
        yield f"doubled: {mark} ran and no call asked for it"
    for row in connection.execute(
        "SELECT turn_id, json_extract(arguments, '$.argv[1]') AS mark, count(*) AS number, "
        "sum(state = 'succeeded') AS succeeded FROM calls GROUP BY mark HAVING number > 1"
    ):
        yield f"doubled: {row['mark']} was decided on {row['number']} times in turn {row['turn_id']}"


def _resolved_twice(connection: sqlite3.Connection, notes: Notes) -> Iterator[str]:
    """Approvals with other than one outcome, wherever it is written."""
    for row in connection.execute("SELECT approval_id, outcome FROM approvals"):
        approval, outcome = row["approval_id"], row["outcome"]
        if outcome is None:
            yield f"approval {approval} is open for ever"
        told = {_OUTCOMES.get(value, str(value)) for value in notes.answered.get(approval, set())}
        if told - {outcome}:
            yield f"approval {approval} is {outcome}, and people were told {told}"
    written = {
        "audit": "SELECT subject AS approval, count(*) AS number FROM audit "
        "WHERE kind = 'approval.resolved' GROUP BY subject",
        "transcript": "SELECT json_extract(payload, '$.approval_id') AS approval, count(*) AS number "
        "FROM events WHERE kind = 'approval_resolved' GROUP BY 1",
    }
    known = [row["approval_id"] for row in connection.execute("SELECT approval_id FROM approvals")]
    for place, query in written.items():
        numbers: dict[str, Any] = dict(map(tuple, connection.execute(query)))
        for approval in known:
            if numbers.get(approval, 0) != 1:
                yield f"approval {approval} was resolved {numbers.get(approval, 0)} times in the {place}"


def _holes(connection: sqlite3.Connection, notes: Notes) -> Iterator[str]:
    """Conversations whose events are not 1, 2, 3, …, and watchers who saw something else."""
    query = "SELECT conversation_id, last_sequence FROM conversations"
    for conversation, last in connection.execute(query).fetchall():
        rows = connection.execute(
            "SELECT sequence, turn_id, kind FROM events WHERE conversation_id = ? ORDER BY sequence",
            (conversation,),
        ).fetchall()
        if [row["sequence"] for row in rows] != list(range(1, last + 1)):
            yield f"hole: the events of {conversation} are not 1 to {last}"
        seen = notes.seen.get(conversation, [])
        if [(row["sequence"], row["turn_id"], row["kind"]) for row in rows] != [
            (event.sequence, event.turn_id, event.WhichOneof("payload")) for event in seen
        ]:
            yield f"watcher of {conversation} saw {len(seen)} events that are not its {len(rows)} events"
