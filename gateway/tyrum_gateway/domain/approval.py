"""Approvals: one question about exactly one call, answered at most once by an authenticated human.

Invariants: an approval is pending until exactly one outcome is recorded; approving needs the digest of what
was shown; whoever answers is recorded by name and method (ARCH-22: human identity, not transport metadata).
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, StrEnum, auto

from tyrum_gateway.domain.canonical import digest_text
from tyrum_gateway.domain.errors import (
    AlreadyResolved,
    KernelBug,
    RequesterMayNotApprove,
    VersionConflict,
)
from tyrum_gateway.domain.ids import ApprovalId, CallId, ConversationId, OverrideId, PrincipalId, TurnId
from tyrum_gateway.domain.principal import Principal

NOT_THE_REQUESTER = "you asked for this call: somebody else has to approve it"
"""Why a principal may not approve where somebody else has to look."""


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
    """From where: the transport and what it proved of the peer, such as `unix socket`."""
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
    requester: str = field(default="", compare=False)
    """Name of `requested_by`, where it was read with it: for people, and no part of the question."""


class Receipt(Enum):
    """What an approval is worth to its call at the moment the call would begin."""

    VALID = auto()
    CHANGED = auto()
    """What would run is not what was approved."""
    LAPSED = auto()
    """The approval was given too long ago."""


def answer(
    approval: Approval,
    *,
    approve: bool,
    digest: str,
    reason: str,
    principal: Principal,
    now: datetime,
    override_id: OverrideId | None = None,
    requester_may_approve: bool = True,
) -> Approval:
    """Record a human's answer.

    The same answer of the same principal again returns the approval unchanged.

    Args:
        approval: The question.
        approve: Whether the call may run.
        digest: Of what was shown.
        reason: Given by the human.
        principal: Who answers.
        now: When.
        override_id: Of the standing permission that an approval creates besides.
        requester_may_approve: Whether who asked for the call may approve it; denying is always possible.

    Raises:
        AlreadyResolved: Another outcome stands, or the approval has expired.
        RequesterMayNotApprove: Somebody else has to.
        VersionConflict: The digest is not that of the approval.
    """
    outcome = Outcome.APPROVED if approve else Outcome.DENIED
    if approval.resolution is not None:
        same = approval.resolution.outcome is outcome
        whole = override_id is None or approval.resolution.override_id is not None
        if same and whole and approval.resolution.principal_id == principal.principal_id:
            return approval
        raise AlreadyResolved(
            f"approval `{approval.approval_id}` is already {approval.resolution.outcome}",
            state=approval.resolution.outcome.value,
        )
    if now >= approval.expires_at:
        raise AlreadyResolved(f"approval `{approval.approval_id}` has expired", state=Outcome.EXPIRED.value)
    if approve and not requester_may_approve and approval.requested_by == principal.principal_id:
        raise RequesterMayNotApprove(NOT_THE_REQUESTER)
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
            override_id=override_id,
        ),
    )


def receipt(approval: Approval, call_id: CallId, subject: Subject, now: datetime) -> Receipt:
    """Tell whether an approval lets its call begin now, with this subject.

    An approval stands after the answer for as long as the question was open to be answered: a gateway that
    was down for longer asks again instead of surprising anybody.

    Raises:
        KernelBug: It is no approval, or that of another call.
    """
    resolution = approval.resolution
    if resolution is None or resolution.outcome is not Outcome.APPROVED or approval.call_id != call_id:
        raise KernelBug(
            "a call would begin without its approval", approval=approval.approval_id, call=call_id
        )
    if approval.subject.digest != subject.digest:
        return Receipt.CHANGED
    stands_for = approval.expires_at - approval.created_at
    return Receipt.VALID if now < resolution.resolved_at + stands_for else Receipt.LAPSED


def close(approval: Approval, outcome: Outcome, now: datetime, reason: str) -> Approval:
    """End a pending approval without a human; a resolved one is returned unchanged."""
    if approval.resolution is not None:
        return approval
    return replace(approval, resolution=Resolution(outcome=outcome, resolved_at=now, reason=reason))
