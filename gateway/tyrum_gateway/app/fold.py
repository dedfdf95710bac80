"""Folding: a transition and what came with it become one commit, audit included.

Invariant: whatever a transition says is durable in the same commit, and nothing else is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, assert_never

from tyrum_gateway.domain.approval import Approval
from tyrum_gateway.domain.binding import Binding
from tyrum_gateway.domain.canonical import Value, digest
from tyrum_gateway.domain.checkpoint import Checkpoint
from tyrum_gateway.domain.commit import AuditEntry, Commit, Evidence
from tyrum_gateway.domain.ids import CallId, OverrideId
from tyrum_gateway.domain.override import Override
from tyrum_gateway.domain.process import ProcessResult
from tyrum_gateway.domain.transcript import (
    ApprovalRequested,
    ApprovalResolved,
    AssistantMessage,
    AttemptAbandoned,
    Payload,
    ToolCallDecided,
    ToolCallFinished,
    ToolCallProposed,
    ToolCallStarted,
    TurnFinished,
    UserMessage,
)
from tyrum_gateway.domain.turn import Call, Turn
from tyrum_gateway.domain.turn_events import (
    CloseApproval,
    Effect,
    OpenApproval,
    Record,
    SaveCall,
    SaveCheckpoint,
    StopProcess,
)
from tyrum_gateway.domain.usage import NOTHING, Usage

KERNEL: Final = "kernel"
"""Actor of what nobody in particular did."""


def fold(
    turn: Turn,
    effects: Iterable[Effect],
    *,
    at: datetime,
    resolved: tuple[Approval, ...] = (),
    overrides: tuple[Override, ...] = (),
    relies_on: tuple[OverrideId, ...] = (),
    bindings: tuple[Binding, ...] = (),
    results: Mapping[CallId, ProcessResult] | None = None,
    checkpoint: Checkpoint | None = None,
    used: Usage = NOTHING,
) -> Commit:
    """Compose a commit.

    Args:
        turn: New value, with the version it was read with.
        effects: Of the transition, in order; a later state of a call replaces an earlier one.
        at: Time of the commit.
        resolved: Approvals with the resolution that this transition brings.
        overrides: Standing permissions that these resolutions create.
        relies_on: Standing permissions that operations begin on.
        bindings: Bindings of operations that begin.
        results: Process results of calls that end.
        checkpoint: New conversation state when the turn comes to rest.
        used: Tokens that the transition adds to the turn's sums.
    """
    events: list[Payload] = []
    calls: dict[CallId, Call] = {}
    opened: list[Approval] = []
    evidence: list[Evidence] = []
    stops: list[Call] = []
    for effect in effects:
        match effect:
            case Record(payload):
                events.append(payload)
                if isinstance(payload, ToolCallFinished):
                    result = (results or {}).get(payload.call_id)
                    evidence.append(Evidence(payload.call_id, payload.content, result))
            case SaveCall(call):
                calls[call.call_id] = call
            case OpenApproval(approval):
                opened.append(approval)
            case StopProcess(call):
                stops.append(call)
            case CloseApproval() | SaveCheckpoint():
                pass  # both come as values
            case _:
                assert_never(effect)
    return Commit(
        turn=turn,
        at=at,
        events=tuple(events),
        calls=tuple(calls.values()),
        opened=tuple(opened),
        resolved=resolved,
        overrides=overrides,
        relies_on=relies_on,
        bindings=bindings,
        evidence=tuple(evidence),
        checkpoint=checkpoint,
        used=used,
        stops=tuple(stops),
        audit=(
            *(entry for payload in events if (entry := _audited(turn, payload, resolved))),
            *(_permitted(override) for override in overrides),
            *(_bound(binding) for binding in bindings),
        ),
    )


def _audited(turn: Turn, payload: Payload, resolved: tuple[Approval, ...]) -> AuditEntry | None:
    def entry(kind: str, subject: str, **details: Value) -> AuditEntry:
        return AuditEntry(kind, KERNEL, subject, {"turn": turn.turn_id, **details})

    match payload:
        case ToolCallDecided():
            return entry(
                "call.decided",
                payload.call_id,
                decision=payload.decision.value,
                rule=payload.rule_id,
                author=payload.author,
                policy=payload.policy_digest,
                target=payload.target,
            )
        case ApprovalRequested():
            return entry("approval.requested", payload.approval_id, call=payload.call_id)
        case ApprovalResolved():
            noted = entry(
                "approval.resolved",
                payload.approval_id,
                call=payload.call_id,
                outcome=payload.outcome.value,
                by=payload.resolved_by,
                method=payload.method,
                reason=payload.reason,
                override=payload.override_id,
                **{"from": payload.origin},
            )
            return replace(noted, actor=_answerer(payload, resolved))
        case ToolCallStarted():
            return entry(
                "operation.begun",
                payload.operation_id,
                call=payload.call_id,
                binding=payload.binding_id,
                process=payload.process_id,
            )
        case ToolCallFinished():
            return entry("call.ended", payload.call_id, state=payload.state.value)
        case AttemptAbandoned():
            return entry("attempt.abandoned", turn.turn_id, step=payload.step, attempt=payload.attempt)
        case TurnFinished():
            return entry(
                "turn.ended",
                turn.turn_id,
                state=payload.state.value,
                reason=payload.reason,
                models=list(turn.answered_by),
            )
        case UserMessage() | AssistantMessage() | ToolCallProposed():
            return None
        case _:
            assert_never(payload)


def _answerer(payload: ApprovalResolved, resolved: tuple[Approval, ...]) -> str:
    """Name the principal whose answer it was; the kernel when nobody answered."""
    for approval in resolved:
        answer = approval.resolution
        if approval.approval_id == payload.approval_id and answer is not None and answer.principal_id:
            return answer.principal_id
    return KERNEL


def _permitted(override: Override) -> AuditEntry:
    details: dict[str, Value] = {
        "agent": override.agent,
        "approval": override.approval_id,
        "permits": override.summary,
        "rule": digest("tyrum.override.1", override.rule.value()),
        "until": override.expires_at.isoformat() if override.expires_at else None,
        "by": override.created_name,
        "method": override.created_method,
        "from": override.created_from,
        "reason": override.created_reason,
    }
    return AuditEntry("override.created", override.created_by, override.override_id, details)


def _bound(binding: Binding) -> AuditEntry:
    candidate = binding.candidate
    details: dict[str, Value] = {
        "operation": binding.operation_id,
        "provider": candidate.provider_id,
        "profile": candidate.profile,
        "instance": candidate.instance_id,
        "artifact": candidate.artifact_digest,
        "config": candidate.config_digest,
    }
    return AuditEntry("operation.bound", KERNEL, binding.binding_id, details)
