"""What the writing thread does for each kind of write, inside a transaction that `writer` owns.

Invariants: each function changes everything its value says, or raises and all it did is rolled back; it
depends on the database and its value alone, because it may be run again.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from tyrum_gateway.domain.approval import Approval, Outcome
from tyrum_gateway.domain.canonical import digest
from tyrum_gateway.domain.commit import Acceptance, Accepted, AuditEntry, Commit, Committed, Evidence
from tyrum_gateway.domain.errors import (
    KernelBug,
    NotFound,
    NotOwner,
    PermissionEnded,
    QuotaExceeded,
    RequestIdReused,
    VersionConflict,
)
from tyrum_gateway.domain.ids import OverrideId
from tyrum_gateway.domain.token_day import TokenDay, day_of
from tyrum_gateway.domain.transcript import ApprovalResolved, Event, Payload, ToolCallFinished, UserMessage
from tyrum_gateway.domain.turn import Turn
from tyrum_gateway.storage import override_rows, rows, statements
from tyrum_gateway.storage.codec import encode
from tyrum_gateway.storage.inserts import BINDINGS, CALLS, CHECKPOINTS, EVENTS, EVIDENCE
from tyrum_gateway.storage.times import to_days, to_microseconds
from tyrum_gateway.storage.transaction import Transaction

KERNEL: Final = "kernel"
"""Actor of what the gateway does of itself."""


def accept(transaction: Transaction, acceptance: Acceptance) -> Accepted:
    """Open a turn for a message, or find the one that the same request opened before.

    Raises:
        RequestIdReused: The principal used the request id for another text or conversation.
        QuotaExceeded: The conversation or the principal has as many unfinished turns as it may have.
        NotFound: The conversation does not exist, or not for the sender.
        NotOwner: The conversation is another principal's.
    """
    turn = acceptance.turn
    asked = digest(
        "tyrum.request.1",
        {
            "conversation": "" if acceptance.opens_conversation else turn.conversation_id,
            "text": acceptance.text,
        },
    )
    found = transaction.run(
        statements.ADMISSION,
        {
            "principal": turn.principal_id,
            "request": acceptance.request_id,
            "conversation": turn.conversation_id,
            "size": acceptance.max_unfinished,
        },
    ).fetchone()
    if found["turn_id"] is not None:
        if found["request_digest"] != asked:
            raise RequestIdReused(
                f"request id `{acceptance.request_id}` was used for another message: choose a new one"
            )
        return _accepted_before(transaction, found)
    number, sequence = _open(transaction, acceptance, found)
    turn = replace(turn, number=number, version=1, changed_at=turn.created_at)
    at = to_microseconds(turn.created_at)
    transaction.run(
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
            "answered_by": "",
        },
    )
    message = UserMessage(acceptance.text, turn.principal_id)
    _append(transaction, turn, (message,), sequence, turn.created_at)
    transaction.audit(acceptance.audit, turn.created_at)
    return Accepted(turn.conversation_id, turn, sequence, due=found["in_conversation"] == 0)


def commit(transaction: Transaction, change: Commit) -> Committed:
    """Apply a transition, provided that the stored turn is the one it started from.

    Raises:
        VersionConflict: The turn's version differs, or an approval is no longer pending.
        PermissionEnded: A standing permission that it relies on does not hold.
    """
    turn, at = change.turn, to_microseconds(change.at)
    followed = _move(transaction, turn, at)
    for override_id in change.relies_on:
        _require_in_force(transaction, override_id, at)
    for approval in change.resolved:
        _resolve(transaction, approval)
    for event in change.events:
        if isinstance(event, ApprovalResolved) and event.outcome is Outcome.SUPERSEDED:
            replaced = {"approved": Outcome.APPROVED.value, "superseded": Outcome.SUPERSEDED.value}
            transaction.run(statements.SUPERSEDE_APPROVAL, {"approval": event.approval_id, **replaced})
    for override in change.overrides:
        transaction.run(statements.INSERT_OVERRIDE, override_rows.values(override))
    transaction.insert(BINDINGS, [rows.binding_values(binding, change.at) for binding in change.bindings])
    # A call may be saved more than once in a commit; the last word counts.
    transaction.insert(CALLS, [rows.call_values(call) for call in change.calls])
    if change.opened:
        transaction.flush()
    for approval in change.opened:
        transaction.run(statements.INSERT_APPROVAL, rows.approval_values(approval))
    _keep_evidence(transaction, change)
    events = _append(transaction, turn, change.events, _take_sequences(transaction, change), change.at)
    if change.checkpoint is not None:
        checkpoint = {
            "conversation_id": turn.conversation_id,
            "through_turn": change.checkpoint.through_turn,
            "summary": change.checkpoint.summary,
        }
        transaction.insert(CHECKPOINTS, [checkpoint])
    transaction.audit(change.audit, change.at)
    stored = replace(turn, version=turn.version + 1, changed_at=change.at)
    return Committed(stored, events, followed, change.stops, _count_tokens(transaction, change))


def _count_tokens(transaction: Transaction, change: Commit) -> TokenDay | None:
    if not change.used.tokens:
        return None
    principal_id, day = change.turn.principal_id, day_of(change.at)
    counted = transaction.run(
        statements.ADD_TOKENS,
        {
            "principal_id": principal_id,
            "day": to_days(day),
            "input_tokens": change.used.input_tokens or 0,
            "output_tokens": change.used.output_tokens or 0,
        },
    ).fetchone()
    return TokenDay(principal_id, day, counted["used"])


def record(transaction: Transaction, entries: Sequence[AuditEntry], at: datetime) -> None:
    """Append facts to the audit log that belong to no turn."""
    transaction.audit(entries, at)


def rewrite(transaction: Transaction) -> None:
    """Write a page as it is; a number of the file's head that nobody uses goes through log and disk."""
    transaction.connection.execute("PRAGMA user_version=0")


def _accepted_before(transaction: Transaction, found: sqlite3.Row) -> Accepted:
    transaction.flush()
    stored = transaction.run(statements.TURN, {"turn": found["turn_id"]}).fetchall()
    turn = rows.turn_view(stored).turn
    return Accepted(turn.conversation_id, turn, found["sequence"])


def _open(transaction: Transaction, acceptance: Acceptance, found: sqlite3.Row) -> tuple[int, int]:
    """Return number and sequence of the new turn and its message."""
    turn, at = acceptance.turn, to_microseconds(acceptance.turn.created_at)
    if not acceptance.opens_conversation:
        _require_own(acceptance, found["owner"])
    _require_room(acceptance, found)
    if acceptance.opens_conversation:
        transaction.run(
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
    number, sequence = found["turn_count"] + 1, found["last_sequence"] + 1
    taken = {"new_turn_count": number, "new_last_sequence": sequence, "at": at}
    transaction.run(statements.OPEN_TURN, {"conversation": turn.conversation_id, **taken})
    return number, sequence


def _require_own(acceptance: Acceptance, owner: str | None) -> None:
    turn = acceptance.turn
    if owner is None or (owner != turn.principal_id and not acceptance.sees_all):
        raise NotFound("conversation", turn.conversation_id)
    if owner != turn.principal_id:
        raise NotOwner(
            "only the principal that opened a conversation may send messages to it",
            conversation=turn.conversation_id,
        )


def _require_room(acceptance: Acceptance, found: sqlite3.Row) -> None:
    turn, most = acceptance.turn, acceptance.max_unfinished
    if found["in_conversation"] >= acceptance.max_queued:
        raise QuotaExceeded(
            f"the conversation has {found['in_conversation']} unfinished messages: wait for an answer",
            conversation=turn.conversation_id,
        )
    if found["of_principal"] >= most:
        raise QuotaExceeded(
            f"you have {most} unfinished turns, as many as `limits.unfinished_turns_per_principal` permits: "
            "wait until one ends, answer what waits for approval, cancel some, or have the operator raise it",
            principal=turn.principal_id,
        )


def _move(transaction: Transaction, turn: Turn, at: int) -> bool:
    """Store a turn's new value; tell, when it ends, whether another one of its conversation is unfinished."""
    values: dict[str, Any] = {
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
        "new_answered_by": " ".join(turn.answered_by),
    }
    if turn.state.final:
        values["conversation"] = turn.conversation_id
        ended = transaction.run(statements.END_TURN, values).fetchone()
        moved, followed = ended is not None, ended is not None and bool(ended["followed"])
    else:
        moved, followed = transaction.run(statements.MOVE_TURN, values).rowcount == 1, False
    if not moved:
        raise VersionConflict("the turn has changed in the meantime: read it again", turn=turn.turn_id)
    return followed


def _take_sequences(transaction: Transaction, change: Commit) -> int:
    """Return the first sequence of the commit's events; 0 when it has none."""
    if not change.events:
        return 0
    taken = transaction.run(
        statements.TAKE_SEQUENCES,
        {
            "conversation": change.turn.conversation_id,
            "count": len(change.events),
            "at": to_microseconds(change.at),
        },
    ).fetchone()
    if taken is None:
        raise KernelBug("a turn is committed to a conversation that does not exist", turn=change.turn.turn_id)
    return int(taken["last_sequence"]) - len(change.events) + 1


def _require_in_force(transaction: Transaction, override_id: OverrideId, at: int) -> None:
    held = transaction.run(statements.OVERRIDE_IN_FORCE, {"override": override_id, "at": at}).fetchone()
    if held is None:
        raise PermissionEnded("a standing permission has ended", override=override_id)


def _resolve(transaction: Transaction, approval: Approval) -> None:
    if approval.resolution is None:
        raise KernelBug("an approval is resolved without an outcome", approval=approval.approval_id)
    values = {f"new_{name}": value for name, value in rows.resolution_values(approval).items()}
    values["approval"] = values.pop("new_approval_id")
    if transaction.run(statements.RESOLVE_APPROVAL, values).rowcount != 1:
        raise VersionConflict("the approval is no longer pending", approval=approval.approval_id)


def _keep_evidence(transaction: Transaction, change: Commit) -> None:
    # What the model got belongs to the event that ends the call, so it is kept even when nothing else is.
    kept = {
        event.call_id: Evidence(event.call_id, event.content, None)
        for event in change.events
        if isinstance(event, ToolCallFinished)
    }
    kept |= {evidence.call_id: evidence for evidence in change.evidence}
    transaction.insert(EVIDENCE, [rows.evidence_values(evidence) for evidence in kept.values()])


def _append(
    transaction: Transaction, turn: Turn, payloads: Sequence[Payload], first: int, at: datetime
) -> tuple[Event, ...]:
    events = tuple(
        Event(sequence, turn.conversation_id, turn.turn_id, at, payload)
        for sequence, payload in enumerate(payloads, first)
    )
    moment = to_microseconds(at)
    transaction.insert(EVENTS, [_event_values(turn.number, event, moment) for event in events])
    return events


def _event_values(turn_number: int, event: Event, at: int) -> Mapping[str, Any]:
    kind, text = encode(event.payload)
    return {
        "conversation_id": event.conversation_id,
        "sequence": event.sequence,
        "turn_number": turn_number,
        "turn_id": event.turn_id,
        "kind": kind,
        "payload": text,
        "evidence_call_id": event.payload.call_id if isinstance(event.payload, ToolCallFinished) else None,
        "created_at": at,
    }
