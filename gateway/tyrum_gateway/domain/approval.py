"""Approvals: one question about exactly one call, answered at most once by an authenticated human.

Invariants: an approval is pending until exactly one outcome is recorded; approving needs the digest of what
was shown; whoever answers is recorded by name and method (ARCH-22: human identity, not transport metadata).
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from tyrum_gateway.domain.canonical import digest_text
from tyrum_gateway.domain.errors import AlreadyResolved, VersionConflict
from tyrum_gateway.domain.ids import ApprovalId, CallId, ConversationId, OverrideId, PrincipalId, TurnId
from tyrum_gateway.domain.principal import Principal


class Outcome(StrEnum):
    """How an approval ended."""

    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Subject:
    """What is approved: canonical JSON for machines, a summary for people. Equal JSON means equal effect."""

    json: str
    summary: str

    @property
    def digest(self) -> str:
        """`sha256:` and 64 hexadecimal digits under the version tag `tyrum.approval.1`."""
        return digest_text("tyrum.approval.1", self.json)


@dataclass(frozen=True, slots=True)
class Resolution:
    """The one answer."""

    outcome: Outcome
    resolved_at: datetime
    principal_id: PrincipalId | None = None
    resolved_by: str = ""
    method: str = ""
    reason: str = ""
    origin: str = ""
    """From where: the transport and what it proved of the peer, such as `unix uid 1000`."""
    override_id: OverrideId | None = None
    """The standing permission that the answer created too."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A question to a human."""

    approval_id: ApprovalId
    conversation_id: ConversationId
    turn_id: TurnId
    call_id: CallId
    tool: str
    subject: Subject
    rule_id: str
    requested_by: PrincipalId
    created_at: datetime
    expires_at: datetime
    agent: str = "default"
    target: str = ""
    """What policy saw, as `Target.describe` writes it: what a standing permission is derived from."""
    resolution: Resolution | None = None


def answer(
    approval: Approval, *, approve: bool, digest: str, reason: str, principal: Principal, now: datetime
) -> Approval:
    """Record a human's answer.

    The same answer of the same principal again returns the approval unchanged.

    Raises:
        AlreadyResolved: Another outcome stands, or the approval has expired.
        VersionConflict: The digest is not that of the approval.
    """
    outcome = Outcome.APPROVED if approve else Outcome.DENIED
    if approval.resolution is not None:
        same = approval.resolution.outcome is outcome
        if same and approval.resolution.principal_id == principal.principal_id:
            return approval
        raise AlreadyResolved(
            f"approval `{approval.approval_id}` is already {approval.resolution.outcome}",
            state=approval.resolution.outcome.value,
        )
    if now >= approval.expires_at:
        raise AlreadyResolved(f"approval `{approval.approval_id}` has expired", state=Outcome.EXPIRED.value)
    if (approve or digest) and digest != approval.subject.digest:
        raise VersionConflict(
            "what would run is not what was shown: read the approval again",
            expected=approval.subject.digest,
            presented=digest[:100],
        )
    return replace(
        approval,
        resolution=Resolution(
            outcome=outcome,
            resolved_at=now,
            principal_id=principal.principal_id,
            resolved_by=principal.name,
            method=principal.method,
            reason=reason,
            origin=principal.origin,
        ),
    )


def close(approval: Approval, outcome: Outcome, now: datetime, reason: str) -> Approval:
    """End a pending approval without a human; a resolved one is returned unchanged."""
    if approval.resolution is not None:
        return approval
    return replace(approval, resolution=Resolution(outcome=outcome, resolved_at=now, reason=reason))
