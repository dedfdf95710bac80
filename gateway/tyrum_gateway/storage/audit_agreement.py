"""What lies around the audit log in a database: schema, indexes, and what the log tells of other rows.

Invariant: nothing is written, and nothing that an index says is believed: tables are read by themselves,
and indexes are compared with them. What is found here is no break of the chain: all rows of the log may be
intact.
"""

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

from sqlalchemy import create_engine, text

from tyrum_gateway.domain import transcript
from tyrum_gateway.domain.errors import Damaged, StateUnusable
from tyrum_gateway.storage import codec
from tyrum_gateway.storage.audit_file import open_database
from tyrum_gateway.storage.connection import failure
from tyrum_gateway.storage.schema import VERSION
from tyrum_gateway.storage.tables import metadata

MOST_DIFFERENCES = 1000
"""Differences that are listed; more are counted."""

_CHECKED = ("audit", "events", "approvals")
_OBJECTS = (
    "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite^_%' ESCAPE '^'"
)
_Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Around:
    """What was found."""

    schema: tuple[str, ...]
    """Tables, indexes and triggers that are not those of the gateway, and indexes that disagree with rows."""
    differences: tuple[str, ...]
    """Events and approvals that do not say what the log says; at most `MOST_DIFFERENCES`."""
    different: int
    """How many differences there are."""
    version: str
    """Version of the schema."""

    @property
    def current(self) -> bool:
        """Whether it is the present one; no other is compared."""
        return self.version == str(VERSION)


def look_around(path: Path) -> Around:
    """Look at a database, of a gateway that runs or of none.

    Raises:
        StateUnusable: The file cannot be read, or holds no tables of a gateway.
    """
    try:
        with closing(open_database(path)) as connection:
            connection.text_factory = lambda raw: raw.decode(errors="surrogateescape")
            connection.execute("BEGIN")  # one state of all tables, also while a gateway writes
            version = _version(connection)
            schema = [*(_schema(connection) if version == str(VERSION) else ()), *_damage(connection)]
            differences: list[str] = []
            different = 0
            for difference in _differences(connection):
                different += 1
                if len(differences) < MOST_DIFFERENCES:
                    differences.append(difference)
    except sqlite3.OperationalError as error:
        raise StateUnusable(f"`{path}` cannot be compared with its audit log: {error}") from error
    except sqlite3.Error as error:
        raise failure(path, error) from error
    return Around(tuple(schema), tuple(differences), different, version)


def _version(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return "" if row is None else str(row[0])


def _schema(connection: sqlite3.Connection) -> Iterator[str]:
    """Compare every object with what the gateway makes; a trigger or index more may hide or change rows."""
    engine = create_engine("sqlite://")
    with engine.connect() as made:
        metadata.create_all(made)
        expected = {name: _squeezed(sql) for name, sql in made.execute(text(_OBJECTS))}
    engine.dispose()
    found = {name: _squeezed(sql) for name, sql in connection.execute(_OBJECTS) if name != "alembic_version"}
    for name in sorted(expected.keys() - found.keys()):
        yield f"`{name}` is missing"
    for name in sorted(found.keys() - expected.keys()):
        yield f"`{name}` is none of the gateway's"
    for name in sorted(found.keys() & expected.keys()):
        if found[name] != expected[name]:
            yield f"`{name}` is not what the gateway made"


def _squeezed(sql: str) -> str:
    return re.sub(r"\s+", "", sql)


def _damage(connection: sqlite3.Connection) -> Iterator[str]:
    for table in _CHECKED:
        for (line,) in connection.execute(f"PRAGMA integrity_check({table})"):
            if line != "ok":
                yield f"table `{table}`: {line}"


def _differences(connection: sqlite3.Connection) -> Iterator[str]:
    logged: dict[tuple[str, str], list[_Facts]] = {}
    for kind, subject, details in connection.execute(
        "SELECT kind, subject, details FROM audit NOT INDEXED ORDER BY sequence"
    ):
        if kind in _KINDS:
            logged.setdefault((kind, subject), []).append(_details(details))
    answered = {
        subject: facts[-1] for (kind, subject), facts in logged.items() if kind == "approval.resolved"
    }
    asked = {subject for kind, subject in logged if kind == "approval.requested"}
    yield from _events(connection, logged)
    yield from _approvals(connection, asked, answered)


def _events(connection: sqlite3.Connection, logged: dict[tuple[str, str], list[_Facts]]) -> Iterator[str]:
    """Compare each event with the row of its commit in the log; what is left there has no event."""
    for conversation, sequence, turn, kind, payload in connection.execute(
        "SELECT conversation_id, sequence, turn_id, kind, payload FROM events NOT INDEXED"
    ):
        place = f"event {sequence} of {conversation}"
        try:
            told = _told(codec.decode(kind, payload, ""), turn)
        except Damaged:
            yield f"{place} cannot be read"
            continue
        if told is None:
            continue
        key, facts = told
        entries = logged.get(key, [])
        match = next((entry for entry in entries if _agree(entry, facts)), None)
        if match is None:
            yield f"{place}: the log has no row `{key[0]}` about {key[1]} that says the same"
            continue
        entries.remove(match)
    for (kind, subject), entries in logged.items():
        for _ in entries:
            yield f"no event says what a row `{kind}` about {subject} says"


def _approvals(
    connection: sqlite3.Connection, asked: set[str], answered: Mapping[str, _Facts]
) -> Iterator[str]:
    seen = set()
    for approval, outcome, by, reason, method in connection.execute(
        "SELECT approval_id, outcome, resolved_by, resolved_reason, method FROM approvals NOT INDEXED"
    ):
        seen.add(approval)
        if approval not in asked:
            yield f"the log does not say that approval {approval} was asked for"
        facts = {} if outcome is None else {"outcome": outcome, "by": by, "reason": reason, "method": method}
        entry = answered.get(approval)
        if (entry is None) != (outcome is None) or (entry is not None and not _agree(entry, facts)):
            yield f"approval {approval} is not answered as the log says"
    for approval in sorted(asked - seen):
        yield f"approval {approval}, of which the log tells, is missing"


def _agree(entry: _Facts, facts: _Facts) -> bool:
    """Tell whether a row of the log says the same; rows of older gateways say less."""
    return all(entry[name] == value for name, value in facts.items() if name in entry)


def _details(details: str) -> _Facts:
    try:
        value = json.loads(details)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


_KINDS = frozenset(
    {
        *("approval.requested", "approval.resolved", "attempt.abandoned", "call.decided", "call.ended"),
        *("message.accepted", "operation.begun", "turn.ended"),
    }
)


def _told(payload: transcript.Payload, turn: str) -> tuple[tuple[str, str], _Facts] | None:
    """Say which row of the log an event stands beside, and what that must say."""
    match payload:
        case transcript.ToolCallDecided():
            facts = {"decision": payload.decision.value, "rule": payload.rule_id, "target": payload.target}
            return ("call.decided", payload.call_id), facts
        case transcript.ApprovalRequested():
            return ("approval.requested", payload.approval_id), {"call": payload.call_id}
        case transcript.ApprovalResolved():
            facts = {"outcome": payload.outcome.value, "by": payload.resolved_by, "reason": payload.reason}
            return ("approval.resolved", payload.approval_id), facts
        case transcript.ToolCallStarted():
            return ("operation.begun", payload.operation_id), {"call": payload.call_id}
        case transcript.ToolCallFinished():
            return ("call.ended", payload.call_id), {"state": payload.state.value}
        case transcript.AttemptAbandoned():
            return ("attempt.abandoned", turn), {"step": payload.step, "attempt": payload.attempt}
        case transcript.TurnFinished():
            return ("turn.ended", turn), {"state": payload.state.value, "reason": payload.reason}
        case transcript.UserMessage():
            digest = "sha256:" + hashlib.sha256(payload.text.encode(errors="surrogateescape")).hexdigest()
            return ("message.accepted", turn), {"text": digest}
        case transcript.AssistantMessage() | transcript.ToolCallProposed():
            return None
        case _:
            assert_never(payload)
