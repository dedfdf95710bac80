"""What the writing thread does for each kind of write, inside a transaction that `writer` owns.

Invariant: each function changes everything its value says, or raises and its savepoint is rolled back.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Final

from tyrum_gateway.domain.approval import Approval
from tyrum_gateway.domain.audit import GENESIS
from tyrum_gateway.domain.canonical import digest
from tyrum_gateway.domain.commit import Acceptance, Accepted, AuditEntry, Commit, Evidence
from tyrum_gateway.domain.errors import (
    KernelBug,
    NotFound,
    PermissionEnded,
    QuotaExceeded,
    RequestIdReused,
    VersionConflict,
)
from tyrum_gateway.domain.ids import OverrideId
from tyrum_gateway.domain.transcript import Event, Payload, ToolCallFinished, UserMessage
from tyrum_gateway.domain.turn import Turn
from tyrum_gateway.storage import override_rows, rows, statements
from tyrum_gateway.storage.codec import encode
from tyrum_gateway.storage.statements import Statement
from tyrum_gateway.storage.times import to_microseconds

_Values = Mapping[str, Any]

KERNEL: Final = "kernel"
"""Actor of what the gateway does of itself."""


def accept(connection: sqlite3.Connection, acceptance: Acceptance) -> Accepted:
    """Open a turn for a message, or find the one that the same request opened before.

    Raises:
        RequestIdReused: The principal used the request id for another text or conversation.
        QuotaExceeded: The conversation or the principal has as many unfinished turns as it may have.
        NotFound: The conversation does not exist.
    """
    turn = acceptance.turn
    asked = digest(
        "tyrum.request.1",
        {
            "conversation": "" if acceptance.opens_conversation else turn.conversation_id,
            "text": acceptance.text,
        },
    )
    request = {"principal": turn.principal_id, "request": acceptance.request_id}
    earlier = _run(connection, statements.REQUEST, request).fetchone()
    if earlier is not None:
        if earlier["request_digest"] != asked:
            raise RequestIdReused(
                f"request id `{acceptance.request_id}` was used for another message: choose a new one"
            )
        stored = rows.turn_view(
            _run(connection, statements.TURN, {"turn": earlier["turn_id"]}).fetchall()
        ).turn
        return Accepted(stored.conversation_id, stored, earlier["sequence"])
    number, sequence = _open(connection, acceptance)
    _require_room(connection, acceptance)
    turn = replace(turn, number=number, version=1, changed_at=turn.created_at)
    at = to_microseconds(turn.created_at)
    _run(
        connection,
        statements.INSERT_TURN,
        {
            "turn_id": turn.turn_id,
            "conversation_id": turn.conversation_id,
            "number": number,
            "principal_id": turn.principal_id,
            "request_id": acceptance.request_id,
            "request_digest": asked,
            "sequence": sequence,
            "state": turn.state.value,
            "version": turn.version,
            "step": turn.step,
            "attempt": turn.attempt,
            "reason": turn.reason,
            "created_at": at,
            "ended_at": None,
            "agent": acceptance.origin.agent,
            "model": acceptance.origin.model,
            "backend": acceptance.origin.backend,
            "session": acceptance.origin.session,
            "host": acceptance.origin.host,
            "input_tokens": 0,
            "output_tokens": 0,
            "usage_complete": 1,
            "lost": 0,
            "working_since": None,
            "changed_at": at,
        },
    )
    message = UserMessage(acceptance.text, turn.principal_id)
    _append(connection, turn, (message,), sequence, turn.created_at)
    append_audit(connection, acceptance.audit, turn.created_at)
    return Accepted(turn.conversation_id, turn, sequence)


def commit(connection: sqlite3.Connection, change: Commit) -> tuple[Turn, tuple[Event, ...]]:
    """Apply a transition, provided that the stored turn is the one it started from.

    Raises:
        VersionConflict: The turn's version differs, or an approval is no longer pending.
        PermissionEnded: A standing permission that it relies on does not hold.
    """
    turn, at = change.turn, to_microseconds(change.at)
    moved = _run(
        connection,
        statements.MOVE_TURN,
        {
            "turn": turn.turn_id,
            "expected": turn.version,
            "new_state": turn.state.value,
            "new_step": turn.step,
            "new_attempt": turn.attempt,
            "new_reason": turn.reason,
            "new_ended_at": at if turn.state.final else None,
            "new_input_tokens": turn.input_tokens,
            "new_output_tokens": turn.output_tokens,
            "new_usage_complete": int(turn.usage_complete),
            "new_lost": turn.lost,
            "new_working_since": None if turn.working_since is None else to_microseconds(turn.working_since),
            "new_changed_at": at,
        },
    )
    if moved.rowcount != 1:
        raise VersionConflict("the turn has changed in the meantime: read it again", turn=turn.turn_id)
    for override_id in change.relies_on:
        _require_in_force(connection, override_id, at)
    for approval in change.resolved:
        _resolve(connection, approval)
    _run_each(
        connection,
        statements.INSERT_OVERRIDE,
        [override_rows.values(override) for override in change.overrides],
    )
    _run_each(
        connection,
        statements.INSERT_BINDING,
        [rows.binding_values(binding, change.at) for binding in change.bindings],
    )
    # A call may be saved more than once in a commit; the last word counts.
    _run_each(connection, statements.SAVE_CALL, [rows.call_values(call) for call in change.calls])
    _run_each(connection, statements.INSERT_APPROVAL, [rows.approval_values(item) for item in change.opened])
    _keep_evidence(connection, change)
    taken = _run(
        connection,
        statements.TAKE_SEQUENCES,
        {"conversation": turn.conversation_id, "count": len(change.events), "at": at},
    ).fetchone()
    if taken is None:
        raise KernelBug("a turn is committed to a conversation that does not exist", turn=turn.turn_id)
    first = int(taken["last_sequence"]) - len(change.events) + 1
    events = _append(connection, turn, change.events, first, change.at)
    if change.checkpoint is not None:
        _run(
            connection,
            statements.SAVE_CHECKPOINT,
            {
                "conversation_id": turn.conversation_id,
                "through_turn": change.checkpoint.through_turn,
                "summary": change.checkpoint.summary,
            },
        )
    append_audit(connection, change.audit, change.at)
    return replace(turn, version=turn.version + 1, changed_at=change.at), events


def record(connection: sqlite3.Connection, entries: Sequence[AuditEntry], at: datetime) -> None:
    """Append facts to the audit log that belong to no turn."""
    append_audit(connection, entries, at)


def _open(connection: sqlite3.Connection, acceptance: Acceptance) -> tuple[int, int]:
    """Return number and sequence of the new turn and its message."""
    turn, at = acceptance.turn, to_microseconds(acceptance.turn.created_at)
    if acceptance.opens_conversation:
        _run(
            connection,
            statements.INSERT_CONVERSATION,
            {
                "conversation_id": turn.conversation_id,
                "principal_id": turn.principal_id,
                "title": acceptance.title,
                "created_at": at,
                "updated_at": at,
                "last_sequence": 1,
                "turn_count": 1,
            },
        )
        return 1, 1
    conversation = {"conversation": turn.conversation_id, "at": at}
    taken = _run(connection, statements.OPEN_TURN, conversation).fetchone()
    if taken is None or (acceptance.only_own and taken["principal_id"] != turn.principal_id):
        raise NotFound("conversation", turn.conversation_id)
    return taken["turn_count"], taken["last_sequence"]


def _require_room(connection: sqlite3.Connection, acceptance: Acceptance) -> None:
    turn, most = acceptance.turn, acceptance.max_unfinished
    counted = {"conversation": turn.conversation_id, "principal": turn.principal_id, "size": most}
    unfinished = _run(connection, statements.COUNT_UNFINISHED, counted).fetchone()
    if unfinished["in_conversation"] >= acceptance.max_queued:
        raise QuotaExceeded(
            f"the conversation has {unfinished['in_conversation']} unfinished messages: wait for an answer",
            conversation=turn.conversation_id,
        )
    if unfinished["of_principal"] >= most:
        raise QuotaExceeded(
            f"you have {most} unfinished turns, as many as `limits.unfinished_turns_per_principal` permits: "
            "wait until one ends, answer what waits for approval, cancel some, or have the operator raise it",
            principal=turn.principal_id,
        )


def _require_in_force(connection: sqlite3.Connection, override_id: OverrideId, at: int) -> None:
    held = _run(connection, statements.OVERRIDE_IN_FORCE, {"override": override_id, "at": at}).fetchone()
    if held is None:
        raise PermissionEnded("a standing permission has ended", override=override_id)


def _resolve(connection: sqlite3.Connection, approval: Approval) -> None:
    if approval.resolution is None:
        raise KernelBug("an approval is resolved without an outcome", approval=approval.approval_id)
    values = {f"new_{name}": value for name, value in rows.resolution_values(approval).items()}
    values["approval"] = values.pop("new_approval_id")
    if _run(connection, statements.RESOLVE_APPROVAL, values).rowcount != 1:
        raise VersionConflict("the approval is no longer pending", approval=approval.approval_id)


def _keep_evidence(connection: sqlite3.Connection, change: Commit) -> None:
    # What the model got belongs to the event that ends the call, so it is kept even when nothing else is.
    kept = {
        event.call_id: Evidence(event.call_id, event.content, None)
        for event in change.events
        if isinstance(event, ToolCallFinished)
    }
    kept |= {evidence.call_id: evidence for evidence in change.evidence}
    _run_each(
        connection,
        statements.INSERT_EVIDENCE,
        [rows.evidence_values(evidence) for evidence in kept.values()],
    )


def _append(
    connection: sqlite3.Connection, turn: Turn, payloads: Sequence[Payload], first: int, at: datetime
) -> tuple[Event, ...]:
    events = tuple(
        Event(sequence, turn.conversation_id, turn.turn_id, at, payload)
        for sequence, payload in enumerate(payloads, first)
    )
    _run_each(connection, statements.INSERT_EVENT, [_event_values(turn.number, event) for event in events])
    return events


def _event_values(turn_number: int, event: Event) -> _Values:
    kind, text = encode(event.payload)
    return {
        "conversation_id": event.conversation_id,
        "sequence": event.sequence,
        "turn_number": turn_number,
        "turn_id": event.turn_id,
        "kind": kind,
        "payload": text,
        "evidence_call_id": event.payload.call_id if isinstance(event.payload, ToolCallFinished) else None,
        "created_at": to_microseconds(event.created_at),
    }


def append_audit(connection: sqlite3.Connection, entries: Sequence[AuditEntry], at: datetime) -> None:
    """Append to the chain; its head is read inside the transaction, so that a rollback takes it back too."""
    if not entries:
        return
    head = _run(connection, statements.AUDIT_HEAD, {}).fetchone()
    sequence, previous = (0, GENESIS) if head is None else (head["sequence"], head["hash"])
    chained = []
    for entry in entries:
        sequence += 1
        row = rows.audit_row(entry, at, sequence=sequence, previous=previous)
        previous = row.hash
        chained.append(asdict(row))
    _run_each(connection, statements.INSERT_AUDIT, chained)


def _run(connection: sqlite3.Connection, statement: Statement, values: _Values) -> sqlite3.Cursor:
    return connection.execute(statement.sql, statement.parameters(values))


def _run_each(connection: sqlite3.Connection, statement: Statement, values: Sequence[_Values]) -> None:
    if values:
        connection.executemany(statement.sql, values)
