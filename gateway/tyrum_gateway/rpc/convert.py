"""Between domain values and client messages, in both directions.

Outwards everything is total; inwards every field is checked against its stated limits before a domain value
exists.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from google.protobuf import timestamp_pb2
from google.protobuf.message import Message

from tyrum.approval.v1 import approval_pb2
from tyrum.chat.v1 import chat_pb2, event_pb2
from tyrum_gateway.domain.answering import Bars
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

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

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
    write_moment(moment, stamp)
    return stamp


def write_moment(moment: datetime, stamp: timestamp_pb2.Timestamp) -> None:
    """Write a moment where it is to stand."""
    since = moment - _EPOCH
    stamp.seconds = since.days * 86_400 + since.seconds
    stamp.nanos = since.microseconds * 1_000


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
        principal=item.principal,
        created_at=timestamp(item.created_at),
        updated_at=timestamp(item.updated_at),
        last_sequence=item.last_sequence,
        title=item.title,
    )


def approval(item: Approval, barred: Bars) -> approval_pb2.Approval:
    """Write an approval for a caller."""
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
        requested_by_name=item.requester,
        approve_barred=barred.approve,
        always_barred=barred.always,
        deny_barred=barred.deny,
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
