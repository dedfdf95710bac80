"""From what a stream carries to client messages.

Events are written where they are to stand: streams carry many, and a copy of each costs as much again.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar, assert_never

from tyrum.chat.v1 import chat_pb2, event_pb2
from tyrum_gateway.app.streams import Delta, Gap, LiveItem, Partial
from tyrum_gateway.domain import transcript
from tyrum_gateway.domain.commit import Accepted
from tyrum_gateway.rpc.convert import CALL_STATES, DECISIONS, OUTCOMES, TURN_STATES, write_moment

MAX_ITEMS = 64
"""Items of a response at most."""

FULL_CHARACTERS = 64 * 1024
"""Length of texts behind which a response takes no further item; a message may have 4 MiB."""

StreamItem = Accepted | transcript.Event | LiveItem
"""What a stream carries."""

_Response = TypeVar("_Response", chat_pb2.SendMessageResponse, chat_pb2.WatchResponse)


def event(item: transcript.Event) -> event_pb2.Event:
    """Write a transcript event."""
    message = event_pb2.Event()
    _fill(item, message)
    return message


def _fill(item: transcript.Event, message: event_pb2.Event) -> None:
    message.sequence = item.sequence
    message.conversation_id = item.conversation_id
    message.turn_id = item.turn_id
    write_moment(item.created_at, message.created_at)
    payload = item.payload
    match payload:
        case transcript.UserMessage():
            user = message.user_message
            user.text = payload.text
            user.principal_id = payload.principal_id
        case transcript.AssistantMessage():
            said = message.assistant_message
            said.step = payload.step
            said.attempt = payload.attempt
            said.text = payload.text
            said.incomplete = payload.incomplete
        case transcript.ApprovalRequested() | transcript.ApprovalResolved():
            _fill_approval(payload, message)
        case (
            transcript.ToolCallProposed()
            | transcript.ToolCallDecided()
            | transcript.ToolCallStarted()
            | transcript.ToolCallFinished()
        ):
            _fill_call(payload, message)
        case transcript.AttemptAbandoned():
            abandoned = message.attempt_abandoned
            abandoned.step = payload.step
            abandoned.attempt = payload.attempt
            abandoned.reason = payload.reason
        case transcript.TurnFinished():
            message.turn_finished.state = TURN_STATES[payload.state]
            message.turn_finished.reason = payload.reason
        case _:
            assert_never(payload)


_Asked = transcript.ApprovalRequested | transcript.ApprovalResolved
_Called = (
    transcript.ToolCallProposed
    | transcript.ToolCallDecided
    | transcript.ToolCallStarted
    | transcript.ToolCallFinished
)


def _fill_approval(payload: _Asked, message: event_pb2.Event) -> None:
    match payload:
        case transcript.ApprovalRequested():
            requested = message.approval_requested
            requested.call_id = payload.call_id
            requested.approval_id = payload.approval_id
            write_moment(payload.expires_at, requested.expires_at)
        case transcript.ApprovalResolved():
            resolved = message.approval_resolved
            resolved.call_id = payload.call_id
            resolved.approval_id = payload.approval_id
            resolved.outcome = OUTCOMES[payload.outcome]
            resolved.resolved_by = payload.resolved_by
            resolved.method = payload.method
            resolved.reason = payload.reason
            resolved.resolved_from = payload.origin
            resolved.override_id = payload.override_id or ""
        case _:
            assert_never(payload)


def _fill_call(payload: _Called, message: event_pb2.Event) -> None:
    match payload:
        case transcript.ToolCallProposed():
            proposed = message.tool_call_proposed
            proposed.call_id = payload.call_id
            proposed.step = payload.step
            proposed.tool = payload.tool
            proposed.arguments_json = payload.arguments
        case transcript.ToolCallDecided():
            decided = message.tool_call_decided
            decided.call_id = payload.call_id
            decided.decision = DECISIONS[payload.decision]
            decided.rule_id = payload.rule_id
            decided.policy_digest = payload.policy_digest
            decided.target = payload.target
            decided.reason = payload.reason
            decided.author = payload.author
        case transcript.ToolCallStarted():
            started = message.tool_call_started
            started.call_id = payload.call_id
            started.operation_id = payload.operation_id
            started.binding_id = payload.binding_id or ""
            started.process_id = payload.process_id or ""
        case transcript.ToolCallFinished():
            finished = message.tool_call_finished
            finished.call_id = payload.call_id
            finished.state = CALL_STATES[payload.state]
            finished.content = payload.content
            if payload.process is not None:
                _outcome(payload.process, finished.process)
        case _:
            assert_never(payload)


def _outcome(ended: transcript.ProcessEnded, outcome: event_pb2.ProcessOutcome) -> None:
    outcome.cause = ended.cause.value
    if ended.exit_code is not None:
        outcome.exit_code = ended.exit_code
    if ended.signal is not None:
        outcome.signal = ended.signal
    outcome.duration.FromMilliseconds(ended.duration_ms)
    for evidence, digest in ((outcome.stdout, ended.stdout), (outcome.stderr, ended.stderr)):
        evidence.total_bytes = digest.total_bytes
        evidence.sha256 = digest.sha256


def responses(kind: type[_Response], items: Iterable[StreamItem]) -> Iterator[_Response]:
    """Write items of a stream, as many to a response as may stand in one."""
    response, held = kind(), 0
    for item in items:
        if response.items and (len(response.items) == MAX_ITEMS or held >= FULL_CHARACTERS):
            yield response
            response, held = kind(), 0
        held += _write(item, response.items.add())
    if response.items:
        yield response


def _write(item: StreamItem, message: chat_pb2.StreamItem) -> int:
    """Write an item where it is to stand; return the length of what may be long in it."""
    match item:
        case transcript.Event():
            _fill(item, message.event)
            return item.characters
        case Accepted(conversation_id, turn, sequence, behind=behind):
            message.accepted.conversation_id = conversation_id
            message.accepted.turn_id = turn.turn_id
            message.accepted.sequence = sequence
            if behind is not None:
                queued = message.accepted.queued_behind
                queued.turn_id = behind.turn_id
                queued.state = TURN_STATES[behind.state]
                queued.approval_id = behind.approval_id or ""
            return 0
        case Delta():
            _text(item, message.delta)
            return len(item.text)
        case Partial():
            _text(item, message.partial)
            return len(item.text)
        case Gap(dropped):
            message.gap.dropped_bytes = dropped
            return 0
        case _:
            assert_never(item)


def _text(item: Delta | Partial, message: chat_pb2.Delta | chat_pb2.PartialText) -> None:
    message.turn_id = item.attempt.turn_id
    message.step = item.attempt.step
    message.attempt = item.attempt.attempt
    message.offset = item.offset
    message.text = item.text
