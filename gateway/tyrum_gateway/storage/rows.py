"""Rows and what they stand for: one pair of functions per record, the one place with names of columns."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from tyrum_gateway.domain.approval import Approval, Outcome, Resolution, Subject
from tyrum_gateway.domain.audit import AuditRow, row_hash
from tyrum_gateway.domain.binding import Binding, Candidate
from tyrum_gateway.domain.canonical import canonical_json
from tyrum_gateway.domain.commit import AuditEntry, Conversation, Evidence
from tyrum_gateway.domain.errors import Damaged
from tyrum_gateway.domain.ids import (
    ApprovalId,
    BindingId,
    CallId,
    ConversationId,
    EntityId,
    OperationId,
    OverrideId,
    PrincipalId,
    ProcessId,
    TokenId,
    TurnId,
)
from tyrum_gateway.domain.ports import BoundOperation, ExecutedCall, TurnView
from tyrum_gateway.domain.principal import Account, Principal, Role, Token
from tyrum_gateway.domain.process import StreamEvidence
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.tool import Execution
from tyrum_gateway.domain.transcript import Event
from tyrum_gateway.domain.turn import Call, Turn
from tyrum_gateway.storage.codec import decode
from tyrum_gateway.storage.times import from_microseconds, to_microseconds

Values = Mapping[str, str | int | bytes | None]
"""Parameters of one statement."""

Id = TypeVar("Id", bound=EntityId)
Member = TypeVar("Member", bound=StrEnum)


def call_values(call: Call) -> Values:
    """Return the row of a call."""
    return {
        "call_id": call.call_id,
        "turn_id": call.turn_id,
        "step": call.step,
        "position": call.index,
        "tool": call.tool,
        "arguments": call.arguments,
        "state": call.state.value,
        "rule_id": call.rule_id,
        "approval_id": call.approval_id,
        "operation_id": call.operation_id,
        "process_id": call.process_id,
        "binding_id": call.binding_id,
    }


def turn_view(rows: Sequence[sqlite3.Row]) -> TurnView:
    """Read a turn from its row joined with the calls of its present step, in order."""
    row = rows[0]
    turn_id = TurnId(row["turn_id"])
    calls = tuple(
        Call(
            call_id=CallId(call["call_id"]),
            turn_id=turn_id,
            step=row["step"],
            index=call["position"],
            tool=call["tool"],
            arguments=call["arguments"],
            state=_member(CallState, call["call_state"]),
            rule_id=call["rule_id"],
            approval_id=_optional(ApprovalId, call["approval_id"]),
            operation_id=_optional(OperationId, call["operation_id"]),
            process_id=_optional(ProcessId, call["process_id"]),
            binding_id=_optional(BindingId, call["binding_id"]),
        )
        for call in rows
        if call["call_id"] is not None
    )
    turn = Turn(
        turn_id=turn_id,
        conversation_id=ConversationId(row["conversation_id"]),
        principal_id=PrincipalId(row["principal_id"]),
        state=_member(TurnState, row["state"]),
        created_at=from_microseconds(row["created_at"]),
        number=row["number"],
        version=row["version"],
        step=row["step"],
        attempt=row["attempt"],
        lost=row["lost"],
        working_since=_moment(row["working_since"]),
        changed_at=_moment(row["changed_at"]),
        calls=calls,
        reason=row["reason"],
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        usage_complete=bool(row["usage_complete"]),
        answered_by=tuple(row["answered_by"].split()),
    )
    return TurnView(turn, _moment(row["ended_at"]))


def event(row: sqlite3.Row) -> Event:
    """Read an event from its row joined with the evidence it refers to."""
    return Event(
        sequence=row["sequence"],
        conversation_id=ConversationId(row["conversation_id"]),
        turn_id=TurnId(row["turn_id"]),
        created_at=from_microseconds(row["created_at"]),
        payload=decode(row["kind"], row["payload"], row["content"] or ""),
    )


def conversation(row: sqlite3.Row) -> Conversation:
    """Read a conversation."""
    return Conversation(
        conversation_id=ConversationId(row["conversation_id"]),
        principal_id=PrincipalId(row["principal_id"]),
        principal=row["principal"] or "",
        created_at=from_microseconds(row["created_at"]),
        updated_at=from_microseconds(row["updated_at"]),
        last_sequence=row["last_sequence"],
        title=row["title"],
    )


def approval_values(approval: Approval) -> Values:
    """Return the row of a question, with its resolution when it has one."""
    return {
        "conversation_id": approval.conversation_id,
        "turn_id": approval.turn_id,
        "call_id": approval.call_id,
        "tool": approval.tool,
        "subject_json": approval.subject.json,
        "subject_summary": approval.subject.summary,
        "rule_id": approval.rule_id,
        "requested_by": approval.requested_by,
        "created_at": to_microseconds(approval.created_at),
        "expires_at": to_microseconds(approval.expires_at),
        "agent": approval.agent,
        "target": approval.target,
        **resolution_values(approval),
    }


def resolution_values(approval: Approval) -> Values:
    """Return the columns that the answer to a question fills."""
    answer = approval.resolution
    return {
        "approval_id": approval.approval_id,
        "outcome": None if answer is None else answer.outcome.value,
        "resolved_at": None if answer is None else to_microseconds(answer.resolved_at),
        "resolved_principal_id": None if answer is None else answer.principal_id,
        "resolved_by": "" if answer is None else answer.resolved_by,
        "method": "" if answer is None else answer.method,
        "resolved_reason": "" if answer is None else answer.reason,
        "resolved_from": "" if answer is None else answer.origin,
        "override_id": None if answer is None else answer.override_id,
    }


def approval(row: sqlite3.Row) -> Approval:
    """Read a question."""
    resolution = None
    if row["outcome"] is not None:
        resolution = Resolution(
            outcome=_member(Outcome, row["outcome"]),
            resolved_at=from_microseconds(row["resolved_at"]),
            principal_id=_optional(PrincipalId, row["resolved_principal_id"]),
            resolved_by=row["resolved_by"],
            method=row["method"],
            reason=row["resolved_reason"],
            origin=row["resolved_from"],
            override_id=_optional(OverrideId, row["override_id"]),
        )
    return Approval(
        approval_id=ApprovalId(row["approval_id"]),
        conversation_id=ConversationId(row["conversation_id"]),
        turn_id=TurnId(row["turn_id"]),
        call_id=CallId(row["call_id"]),
        tool=row["tool"],
        subject=Subject(row["subject_json"], row["subject_summary"]),
        rule_id=row["rule_id"],
        requested_by=PrincipalId(row["requested_by"]),
        created_at=from_microseconds(row["created_at"]),
        expires_at=from_microseconds(row["expires_at"]),
        agent=row["agent"],
        target=row["target"],
        requester=row["requester"] or "",
        resolution=resolution,
    )


def binding_values(binding: Binding, at: datetime) -> Values:
    """Return the row of a binding committed at a time."""
    candidate = binding.candidate
    return {
        "binding_id": binding.binding_id,
        "operation_id": binding.operation_id,
        "kind": candidate.kind,
        "provider": candidate.provider,
        "provider_id": candidate.provider_id,
        "profile": candidate.profile,
        "contract_major": candidate.contract_major,
        "contract_minor": candidate.contract_minor,
        "contract_digest": candidate.contract_digest,
        "implementation_version": candidate.implementation_version,
        "artifact_digest": candidate.artifact_digest,
        "config_digest": candidate.config_digest,
        "instance_id": candidate.instance_id,
        "claims": canonical_json(candidate.claims),
        "journal_id": candidate.journal_id,
        "created_at": to_microseconds(at),
    }


def bound_operation(row: sqlite3.Row) -> BoundOperation:
    """Read a binding with the time of its commit."""
    candidate = Candidate(
        kind=row["kind"],
        provider=row["provider"],
        provider_id=row["provider_id"],
        profile=row["profile"],
        contract_major=row["contract_major"],
        contract_minor=row["contract_minor"],
        contract_digest=row["contract_digest"],
        implementation_version=row["implementation_version"],
        artifact_digest=row["artifact_digest"],
        config_digest=row["config_digest"],
        instance_id=row["instance_id"],
        claims=tuple(json.loads(row["claims"])),
        journal_id=row["journal_id"],
    )
    binding = Binding(BindingId(row["binding_id"]), OperationId(row["operation_id"]), candidate)
    return BoundOperation(binding, from_microseconds(row["created_at"]))


def executed_call(row: sqlite3.Row) -> ExecutedCall:
    """Read a begun call from the columns of its binding, its state, process and principal."""
    binding = bound_operation(row).binding
    execution = Execution(
        operation_id=binding.operation_id,
        process_id=_optional(ProcessId, row["process_id"]),
        binding_id=binding.binding_id,
        candidate=binding.candidate,
        principal_id=PrincipalId(row["principal_id"]),
    )
    return ExecutedCall(execution, CallState(row["call_state"]))


def evidence_values(evidence: Evidence) -> Values:
    """Return the row of what is kept of a call's result."""
    process = evidence.process
    return {
        "call_id": evidence.call_id,
        "content": evidence.content,
        "cause": None if process is None else process.cause.value,
        "exit_code": None if process is None else process.exit_code,
        "signal": None if process is None else process.signal,
        "duration": None if process is None else round(process.duration.total_seconds() * 1_000_000),
        **_stream_values("stdout", None if process is None else process.stdout),
        **_stream_values("stderr", None if process is None else process.stderr),
    }


def audit_row(entry: AuditEntry, at: datetime, *, sequence: int, previous: str) -> AuditRow:
    """Return the row of an audit entry that follows the row with the hash `previous`."""
    moment, details = to_microseconds(at), canonical_json(entry.details)
    hashed = row_hash(
        sequence=sequence,
        at=moment,
        kind=entry.kind,
        actor=entry.actor,
        subject=entry.subject,
        details=details,
        previous=previous,
    )
    return AuditRow(sequence, moment, entry.kind, entry.actor, entry.subject, details, previous, hashed)


def principal(row: sqlite3.Row) -> Principal:
    """Read a principal that presented a token."""
    return Principal(
        principal_id=PrincipalId(row["principal_id"]),
        name=row["name"],
        roles=_roles(row),
        method="token",
        token_id=TokenId(row["token_id"]),
        expires_at=_moment(row["expires_at"]),
    )


def account_values(account: Account) -> Values:
    """Return the row of a principal."""
    return {
        "principal_id": account.principal_id,
        "name": account.name,
        "roles": canonical_json(sorted(account.roles)),
        "created_at": to_microseconds(account.created_at),
        "disabled_at": None if account.disabled_at is None else to_microseconds(account.disabled_at),
    }


def account(row: sqlite3.Row) -> Account:
    """Read a principal."""
    return Account(
        principal_id=PrincipalId(row["principal_id"]),
        name=row["name"],
        roles=_roles(row),
        created_at=from_microseconds(row["created_at"]),
        disabled_at=_moment(row["disabled_at"]),
    )


def token_values(token: Token, digest: str) -> Values:
    """Return the row of a token, which is found by its digest."""
    return {
        "token_sha256": digest,
        "principal_id": token.principal_id,
        "created_at": to_microseconds(token.created_at),
        "expires_at": None if token.expires_at is None else to_microseconds(token.expires_at),
        "revoked_at": None if token.revoked_at is None else to_microseconds(token.revoked_at),
        "token_id": token.token_id,
        "label": token.label,
    }


def token(row: sqlite3.Row) -> Token:
    """Read a token, without its digest."""
    return Token(
        token_id=TokenId(row["token_id"]),
        principal_id=PrincipalId(row["principal_id"]),
        label=row["label"],
        created_at=from_microseconds(row["created_at"]),
        expires_at=_moment(row["expires_at"]),
        revoked_at=_moment(row["revoked_at"]),
    )


def _roles(row: sqlite3.Row) -> frozenset[Role]:
    return frozenset(_member(Role, role) for role in json.loads(row["roles"]))


def _stream_values(name: str, stream: StreamEvidence | None) -> Values:
    return {
        f"{name}_bytes": None if stream is None else stream.total_bytes,
        f"{name}_sha256": None if stream is None else stream.sha256,
        f"{name}_head": None if stream is None else stream.head,
        f"{name}_tail": None if stream is None else stream.tail,
    }


def _member(kind: type[Member], text: str) -> Member:
    try:
        return kind(text)
    except ValueError as error:
        raise Damaged(f"the database holds the unknown {kind.__name__} `{text[:60]}`") from error


def _optional(kind: type[Id], text: str | None) -> Id | None:
    return None if text is None else kind(text)


def _moment(count: int | None) -> datetime | None:
    return None if count is None else from_microseconds(count)
