"""Between domain values and client messages, in both directions.

Outwards everything is total; inwards every field is checked against its stated limits before a domain value
exists.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar, assert_never

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.message import Message

from tyrum.approval.v1 import approval_pb2
from tyrum.chat.v1 import chat_pb2, event_pb2
from tyrum_gateway.app.streams import Delta, Gap, LiveItem, Partial
from tyrum_gateway.domain import transcript
from tyrum_gateway.domain.approval import Approval, Outcome
from tyrum_gateway.domain.commit import Conversation
from tyrum_gateway.domain.errors import InvalidRequest
from tyrum_gateway.domain.policy import Decision
from tyrum_gateway.domain.ports import TurnView
from tyrum_gateway.domain.states import CallState, TurnState

MAX_TEXT = 256 * 1024
"""Bytes of a user's message."""

MAX_REASON = 1024
"""Bytes of a reason."""

MAX_PAGE = 3 * 1024 * 1024
"""Bytes of a page's entries; a message may have 4 MiB. One entry always fits."""

_Item = TypeVar("_Item")
_Entry = TypeVar("_Entry", bound=Message)

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")

TURN_STATES = {
    TurnState.QUEUED: event_pb2.TURN_STATE_QUEUED,
    TurnState.RUNNING: event_pb2.TURN_STATE_RUNNING,
    TurnState.WAITING_APPROVAL: event_pb2.TURN_STATE_WAITING_APPROVAL,
    TurnState.COMPLETED: event_pb2.TURN_STATE_COMPLETED,
    TurnState.FAILED: event_pb2.TURN_STATE_FAILED,
    TurnState.CANCELLED: event_pb2.TURN_STATE_CANCELLED,
}
CALL_STATES = {
    CallState.PROPOSED: event_pb2.CALL_STATE_PROPOSED,
    CallState.AWAITING_APPROVAL: event_pb2.CALL_STATE_AWAITING_APPROVAL,
    CallState.PERMITTED: event_pb2.CALL_STATE_PERMITTED,
    CallState.EXECUTING: event_pb2.CALL_STATE_EXECUTING,
    CallState.SUCCEEDED: event_pb2.CALL_STATE_SUCCEEDED,
    CallState.FAILED: event_pb2.CALL_STATE_FAILED,
    CallState.DENIED: event_pb2.CALL_STATE_DENIED,
    CallState.CANCELLED: event_pb2.CALL_STATE_CANCELLED,
    CallState.OUTCOME_UNKNOWN: event_pb2.CALL_STATE_OUTCOME_UNKNOWN,
}
DECISIONS = {
    Decision.ALLOW: event_pb2.DECISION_ALLOW,
    Decision.REQUIRE_APPROVAL: event_pb2.DECISION_REQUIRE_APPROVAL,
    Decision.DENY: event_pb2.DECISION_DENY,
}
OUTCOMES = {
    Outcome.APPROVED: event_pb2.APPROVAL_OUTCOME_APPROVED,
    Outcome.DENIED: event_pb2.APPROVAL_OUTCOME_DENIED,
    Outcome.EXPIRED: event_pb2.APPROVAL_OUTCOME_EXPIRED,
    Outcome.CANCELLED: event_pb2.APPROVAL_OUTCOME_CANCELLED,
    Outcome.SUPERSEDED: event_pb2.APPROVAL_OUTCOME_SUPERSEDED,
}


# -- Inwards -------------------------------------------------------------------------------------


def message_text(text: str) -> str:
    """Check a user's message."""
    size = len(text.encode())
    if not 1 <= size <= MAX_TEXT:
        raise InvalidRequest("text", f"must have 1 to {MAX_TEXT} bytes, it has {size}")
    return text


def request_id(text: str) -> str:
    """Check a client-chosen idempotency key."""
    if not _REQUEST_ID.fullmatch(text):
        raise InvalidRequest("request_id", "must be 1 to 128 printable ASCII characters")
    return text


def reason(text: str) -> str:
    """Check a reason."""
    if len(text.encode()) > MAX_REASON:
        raise InvalidRequest("reason", f"must have at most {MAX_REASON} bytes")
    return text


def page_size(value: int, *, default: int, maximum: int) -> int:
    """Check a page size; 0 means the default."""
    if value > maximum:
        raise InvalidRequest("page_size", f"must be at most {maximum}")
    return value or default


def sequence(value: int) -> int:
    """Check a resume position."""
    if value < 0:
        raise InvalidRequest("after_sequence", "must not be negative")
    return value


# -- Outwards ------------------------------------------------------------------------------------


def page(items: Sequence[_Item], size: int, write: Callable[[_Item], _Entry]) -> tuple[list[_Entry], bool]:
    """Write at most `size` entries, fewer when they are large; tell whether items are left.

    Without this, a few large entries would make a whole list unreadable.
    """
    written: list[_Entry] = []
    held = 0
    for item in items[:size]:
        entry = write(item)
        held += entry.ByteSize()
        if written and held > MAX_PAGE:
            break
        written.append(entry)
    return written, len(items) > len(written)


def timestamp(moment: datetime) -> timestamp_pb2.Timestamp:
    """Write a moment."""
    stamp = timestamp_pb2.Timestamp()
    stamp.FromDatetime(moment)
    return stamp


def event(item: transcript.Event) -> event_pb2.Event:
    """Write a transcript event."""
    message = event_pb2.Event(
        sequence=item.sequence,
        conversation_id=item.conversation_id,
        turn_id=item.turn_id,
        created_at=timestamp(item.created_at),
    )
    payload = item.payload
    match payload:
        case transcript.UserMessage():
            message.user_message.CopyFrom(
                event_pb2.UserMessage(text=payload.text, principal_id=payload.principal_id)
            )
        case transcript.AssistantMessage():
            message.assistant_message.CopyFrom(
                event_pb2.AssistantMessage(
                    step=payload.step,
                    attempt=payload.attempt,
                    text=payload.text,
                    incomplete=payload.incomplete,
                )
            )
        case transcript.ToolCallProposed():
            message.tool_call_proposed.CopyFrom(
                event_pb2.ToolCallProposed(
                    call_id=payload.call_id,
                    step=payload.step,
                    tool=payload.tool,
                    arguments_json=payload.arguments,
                )
            )
        case transcript.ToolCallDecided():
            message.tool_call_decided.CopyFrom(
                event_pb2.ToolCallDecided(
                    call_id=payload.call_id,
                    decision=DECISIONS[payload.decision],
                    rule_id=payload.rule_id,
                    policy_digest=payload.policy_digest,
                    target=payload.target,
                    reason=payload.reason,
                    author=payload.author,
                )
            )
        case transcript.ApprovalRequested():
            message.approval_requested.CopyFrom(
                event_pb2.ApprovalRequested(
                    call_id=payload.call_id,
                    approval_id=payload.approval_id,
                    expires_at=timestamp(payload.expires_at),
                )
            )
        case transcript.ApprovalResolved():
            message.approval_resolved.CopyFrom(
                event_pb2.ApprovalResolved(
                    call_id=payload.call_id,
                    approval_id=payload.approval_id,
                    outcome=OUTCOMES[payload.outcome],
                    resolved_by=payload.resolved_by,
                    method=payload.method,
                    reason=payload.reason,
                    resolved_from=payload.origin,
                    override_id=payload.override_id or "",
                )
            )
        case transcript.ToolCallStarted():
            message.tool_call_started.CopyFrom(
                event_pb2.ToolCallStarted(
                    call_id=payload.call_id,
                    operation_id=payload.operation_id,
                    binding_id=payload.binding_id or "",
                    process_id=payload.process_id or "",
                )
            )
        case transcript.ToolCallFinished():
            message.tool_call_finished.CopyFrom(_finished(payload))
        case transcript.AttemptAbandoned():
            message.attempt_abandoned.CopyFrom(
                event_pb2.AttemptAbandoned(step=payload.step, attempt=payload.attempt, reason=payload.reason)
            )
        case transcript.TurnFinished():
            message.turn_finished.CopyFrom(
                event_pb2.TurnFinished(state=TURN_STATES[payload.state], reason=payload.reason)
            )
        case _:
            assert_never(payload)
    return message


def _finished(payload: transcript.ToolCallFinished) -> event_pb2.ToolCallFinished:
    message = event_pb2.ToolCallFinished(
        call_id=payload.call_id, state=CALL_STATES[payload.state], content=payload.content
    )
    ended = payload.process
    if ended is not None:
        outcome = event_pb2.ProcessOutcome(
            cause=ended.cause.value,
            exit_code=ended.exit_code,
            signal=ended.signal,
            stdout=event_pb2.OutputEvidence(total_bytes=ended.stdout.total_bytes, sha256=ended.stdout.sha256),
            stderr=event_pb2.OutputEvidence(total_bytes=ended.stderr.total_bytes, sha256=ended.stderr.sha256),
        )
        duration = duration_pb2.Duration()
        duration.FromMilliseconds(ended.duration_ms)
        outcome.duration.CopyFrom(duration)
        message.process.CopyFrom(outcome)
    return message


def sent_item(item: transcript.Event | LiveItem) -> chat_pb2.SendMessageResponse:
    """Write one item of a SendMessage stream."""
    match item:
        case transcript.Event():
            return chat_pb2.SendMessageResponse(event=event(item))
        case Delta():
            return chat_pb2.SendMessageResponse(delta=_delta(item))
        case Partial():
            return chat_pb2.SendMessageResponse(partial=_partial(item))
        case Gap(dropped):
            return chat_pb2.SendMessageResponse(gap=chat_pb2.Gap(dropped_bytes=dropped))
        case _:
            assert_never(item)


def watched_item(item: transcript.Event | LiveItem) -> chat_pb2.WatchResponse:
    """Write one item of a Watch stream."""
    match item:
        case transcript.Event():
            return chat_pb2.WatchResponse(event=event(item))
        case Delta():
            return chat_pb2.WatchResponse(delta=_delta(item))
        case Partial():
            return chat_pb2.WatchResponse(partial=_partial(item))
        case Gap(dropped):
            return chat_pb2.WatchResponse(gap=chat_pb2.Gap(dropped_bytes=dropped))
        case _:
            assert_never(item)


def _delta(item: Delta) -> chat_pb2.Delta:
    return chat_pb2.Delta(
        turn_id=item.attempt.turn_id,
        step=item.attempt.step,
        attempt=item.attempt.attempt,
        offset=item.offset,
        text=item.text,
    )


def _partial(item: Partial) -> chat_pb2.Partial:
    return chat_pb2.Partial(
        turn_id=item.attempt.turn_id,
        step=item.attempt.step,
        attempt=item.attempt.attempt,
        offset=item.offset,
        text=item.text,
    )


def turn(view: TurnView) -> chat_pb2.Turn:
    """Write a turn."""
    item = view.turn
    message = chat_pb2.Turn(
        turn_id=item.turn_id,
        conversation_id=item.conversation_id,
        state=TURN_STATES[item.state],
        steps=item.step,
        created_at=timestamp(item.created_at),
        reason=item.reason,
    )
    if view.ended_at is not None:
        message.ended_at.CopyFrom(timestamp(view.ended_at))
    return message


def conversation(item: Conversation) -> chat_pb2.Conversation:
    """Write a conversation."""
    return chat_pb2.Conversation(
        conversation_id=item.conversation_id,
        principal_id=item.principal_id,
        created_at=timestamp(item.created_at),
        updated_at=timestamp(item.updated_at),
        last_sequence=item.last_sequence,
        title=item.title,
    )


def approval(item: Approval) -> approval_pb2.Approval:
    """Write an approval."""
    message = approval_pb2.Approval(
        approval_id=item.approval_id,
        conversation_id=item.conversation_id,
        turn_id=item.turn_id,
        call_id=item.call_id,
        tool=item.tool,
        summary=item.subject.summary,
        subject_json=item.subject.json,
        digest=item.subject.digest,
        rule_id=item.rule_id,
        requested_by=item.requested_by,
        created_at=timestamp(item.created_at),
        expires_at=timestamp(item.expires_at),
        agent=item.agent,
    )
    if item.resolution is not None:
        message.outcome = OUTCOMES[item.resolution.outcome]
        message.resolved_by = item.resolution.resolved_by
        message.method = item.resolution.method
        message.reason = item.resolution.reason
        message.resolved_from = item.resolution.origin
        message.override_id = item.resolution.override_id or ""
        message.resolved_at.CopyFrom(timestamp(item.resolution.resolved_at))
    return message
