"""Payloads of transcript events as JSON, one explicit form per kind.

Invariant: what was encoded decodes to an equal payload, for every kind; anything else in the database is
damage and refused, never guessed. `ToolCallFinished.content` is not in the JSON: it is kept as evidence.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, assert_never

from tyrum_gateway.domain import transcript
from tyrum_gateway.domain.approval import Outcome
from tyrum_gateway.domain.errors import Damaged
from tyrum_gateway.domain.ids import (
    ApprovalId,
    BindingId,
    CallId,
    OperationId,
    OverrideId,
    PrincipalId,
    ProcessId,
)
from tyrum_gateway.domain.policy import Decision
from tyrum_gateway.domain.process import EndCause
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.storage.times import from_microseconds, to_microseconds

_Fields = Mapping[str, Any]

_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encode(payload: transcript.Payload) -> tuple[str, str]:
    """Return kind and JSON text of a payload."""
    kind, fields = _fields(payload)
    return kind, _JSON.encode(fields)


def decode(kind: str, text: str, content: str) -> transcript.Payload:
    """Read a payload back.

    Args:
        kind: As `encode` returned it.
        text: The JSON.
        content: The evidence beside a `tool_call_finished`; unused otherwise.

    Raises:
        Damaged: The kind is unknown or the JSON is not of its form.
    """
    reader = _READERS.get(kind)
    if reader is None:
        raise Damaged(f"the database holds an event of the unknown kind `{kind[:60]}`", kind=kind[:60])
    try:
        return reader(json.loads(text), content)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise Damaged(
            f"the database holds a damaged event of kind `{kind}`", kind=kind, problem=repr(error)[:200]
        ) from error


def _fields(payload: transcript.Payload) -> tuple[str, _Fields]:
    match payload:
        case transcript.UserMessage():
            return "user_message", {"text": payload.text, "principal_id": payload.principal_id}
        case transcript.AssistantMessage():
            return "assistant_message", {
                "step": payload.step,
                "attempt": payload.attempt,
                "text": payload.text,
                "incomplete": payload.incomplete,
            }
        case transcript.ToolCallProposed():
            return "tool_call_proposed", {
                "call_id": payload.call_id,
                "step": payload.step,
                "tool": payload.tool,
                "arguments": payload.arguments,
            }
        case transcript.ToolCallDecided():
            return "tool_call_decided", {
                "call_id": payload.call_id,
                "decision": payload.decision.value,
                "rule_id": payload.rule_id,
                "policy_digest": payload.policy_digest,
                "target": payload.target,
                "reason": payload.reason,
                "author": payload.author,
            }
        case transcript.ApprovalRequested():
            return "approval_requested", {
                "call_id": payload.call_id,
                "approval_id": payload.approval_id,
                "expires_at": to_microseconds(payload.expires_at),
            }
        case transcript.ApprovalResolved():
            return "approval_resolved", {
                "call_id": payload.call_id,
                "approval_id": payload.approval_id,
                "outcome": payload.outcome.value,
                "resolved_by": payload.resolved_by,
                "method": payload.method,
                "reason": payload.reason,
                "origin": payload.origin,
                "override_id": payload.override_id,
            }
        case transcript.ToolCallStarted():
            return "tool_call_started", {
                "call_id": payload.call_id,
                "operation_id": payload.operation_id,
                "binding_id": payload.binding_id,
                "process_id": payload.process_id,
            }
        case transcript.ToolCallFinished():
            return "tool_call_finished", {
                "call_id": payload.call_id,
                "state": payload.state.value,
                "process": None if payload.process is None else _process_fields(payload.process),
            }
        case transcript.AttemptAbandoned():
            return "attempt_abandoned", {
                "step": payload.step,
                "attempt": payload.attempt,
                "reason": payload.reason,
            }
        case transcript.TurnFinished():
            return "turn_finished", {"state": payload.state.value, "reason": payload.reason}
        case _:
            assert_never(payload)


def _process_fields(process: transcript.ProcessEnded) -> _Fields:
    return {
        "cause": process.cause.value,
        "exit_code": process.exit_code,
        "signal": process.signal,
        "duration_ms": process.duration_ms,
        "stdout": {"total_bytes": process.stdout.total_bytes, "sha256": process.stdout.sha256},
        "stderr": {"total_bytes": process.stderr.total_bytes, "sha256": process.stderr.sha256},
    }


def _process(fields: _Fields) -> transcript.ProcessEnded:
    return transcript.ProcessEnded(
        cause=EndCause(fields["cause"]),
        exit_code=fields["exit_code"],
        signal=fields["signal"],
        duration_ms=fields["duration_ms"],
        stdout=transcript.OutputDigest(fields["stdout"]["total_bytes"], fields["stdout"]["sha256"]),
        stderr=transcript.OutputDigest(fields["stderr"]["total_bytes"], fields["stderr"]["sha256"]),
    )


def _user_message(fields: _Fields, _content: str) -> transcript.Payload:
    return transcript.UserMessage(fields["text"], PrincipalId(fields["principal_id"]))


def _assistant_message(fields: _Fields, _content: str) -> transcript.Payload:
    return transcript.AssistantMessage(
        fields["step"], fields["attempt"], fields["text"], incomplete=fields["incomplete"]
    )


def _tool_call_proposed(fields: _Fields, _content: str) -> transcript.Payload:
    return transcript.ToolCallProposed(
        CallId(fields["call_id"]), fields["step"], fields["tool"], fields["arguments"]
    )


def _tool_call_decided(fields: _Fields, _content: str) -> transcript.Payload:
    return transcript.ToolCallDecided(
        call_id=CallId(fields["call_id"]),
        decision=Decision(fields["decision"]),
        rule_id=fields["rule_id"],
        policy_digest=fields["policy_digest"],
        target=fields["target"],
        reason=fields["reason"],
        author=fields["author"],
    )


def _approval_requested(fields: _Fields, _content: str) -> transcript.Payload:
    return transcript.ApprovalRequested(
        CallId(fields["call_id"]),
        ApprovalId(fields["approval_id"]),
        from_microseconds(fields["expires_at"]),
    )


def _approval_resolved(fields: _Fields, _content: str) -> transcript.Payload:
    # The last two came later than the first events of this kind.
    override = fields.get("override_id")
    return transcript.ApprovalResolved(
        call_id=CallId(fields["call_id"]),
        approval_id=ApprovalId(fields["approval_id"]),
        outcome=Outcome(fields["outcome"]),
        resolved_by=fields["resolved_by"],
        method=fields["method"],
        reason=fields["reason"],
        origin=fields.get("origin", ""),
        override_id=None if override is None else OverrideId(override),
    )


def _tool_call_started(fields: _Fields, _content: str) -> transcript.Payload:
    binding, process = fields["binding_id"], fields["process_id"]
    return transcript.ToolCallStarted(
        CallId(fields["call_id"]),
        OperationId(fields["operation_id"]),
        None if binding is None else BindingId(binding),
        None if process is None else ProcessId(process),
    )


def _tool_call_finished(fields: _Fields, content: str) -> transcript.Payload:
    process = fields["process"]
    return transcript.ToolCallFinished(
        CallId(fields["call_id"]),
        CallState(fields["state"]),
        content,
        None if process is None else _process(process),
    )


def _attempt_abandoned(fields: _Fields, _content: str) -> transcript.Payload:
    return transcript.AttemptAbandoned(fields["step"], fields["attempt"], fields["reason"])


def _turn_finished(fields: _Fields, _content: str) -> transcript.Payload:
    return transcript.TurnFinished(TurnState(fields["state"]), fields["reason"])


_READERS: Mapping[str, Callable[[_Fields, str], transcript.Payload]] = {
    "user_message": _user_message,
    "assistant_message": _assistant_message,
    "tool_call_proposed": _tool_call_proposed,
    "tool_call_decided": _tool_call_decided,
    "approval_requested": _approval_requested,
    "approval_resolved": _approval_resolved,
    "tool_call_started": _tool_call_started,
    "tool_call_finished": _tool_call_finished,
    "attempt_abandoned": _attempt_abandoned,
    "turn_finished": _turn_finished,
}
