"""Runs: one turn each, as the registry shows it: who asked, with what, what was permitted, what it used.

Invariant: a run is a view of durable rows and says nothing that they do not say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from tyrum_gateway.domain.approval import Outcome
from tyrum_gateway.domain.commit import Origin
from tyrum_gateway.domain.ids import (
    ApprovalId,
    BindingId,
    CallId,
    ConversationId,
    OperationId,
    OverrideId,
    PrincipalId,
    ProcessId,
    TurnId,
)
from tyrum_gateway.domain.states import CallState, TurnState

LONGEST_TARGET = 8 * 1024
TARGETS_BYTES = 1024 * 1024
"""Bytes of a target that a run shows, and of all of them; the transcript has every one whole."""

LONGEST_TOOL = 128
"""Characters of a tool's name that a run shows; a model may have made up a longer one."""

MOST_CALLS = 2_048
"""Calls, and approvals, that a run shows: a step has 64 at most, and a turn 32 steps unless the operator says
more. With these bounds every run fits into a client's message."""

_ENTRY_BYTES = 512


@dataclass(frozen=True, slots=True)
class RunBinding:
    """With which provider a call's operation ran."""

    binding_id: BindingId
    provider: str
    profile: str
    artifact_digest: str
    instance_id: str


@dataclass(frozen=True, slots=True)
class RunCall:
    """One tool call."""

    call_id: CallId
    step: int
    tool: str
    state: CallState
    rule_id: str
    operation_id: OperationId | None
    process_id: ProcessId | None
    binding: RunBinding | None
    output_bytes: int
    """Of both streams, whether they were kept or not."""
    target: str = ""
    """What policy saw when it was last decided; empty before, beyond `LONGEST_TARGET`, and where those of the
    calls before it have `TARGETS_BYTES`."""


@dataclass(frozen=True, slots=True)
class RunApproval:
    """One question, and its answer."""

    approval_id: ApprovalId
    call_id: CallId
    asked_at: datetime
    outcome: Outcome | None
    resolved_at: datetime | None
    resolved_by: str
    method: str
    origin: str
    override_id: OverrideId | None


@dataclass(frozen=True, slots=True)
class Run:
    """One turn in the registry."""

    turn_id: TurnId
    conversation_id: ConversationId
    number: int
    principal_id: PrincipalId
    principal: str
    """Name of the principal; empty when there is none of that id any more."""
    origin: Origin
    state: TurnState
    reason: str
    created_at: datetime
    ended_at: datetime | None
    steps: int
    abandoned: int
    """Attempts that were given up."""
    input_tokens: int
    output_tokens: int
    usage_complete: bool
    answered_by: tuple[str, ...]
    """Names of the models that answered its steps, in the order in which each first did."""
    calls: tuple[RunCall, ...]
    approvals: tuple[RunApproval, ...]

    @property
    def total(self) -> timedelta | None:
        """From acceptance to rest; None before it rests."""
        return None if self.ended_at is None else self.ended_at - self.created_at

    @property
    def attempts(self) -> int:
        """Attempts at all steps."""
        return self.steps + self.abandoned

    @property
    def size(self) -> int:
        """About how many bytes it takes to show it."""
        return sum(len(call.target) for call in self.calls) + _ENTRY_BYTES * (
            1 + len(self.calls) + len(self.approvals)
        )

    @property
    def output_bytes(self) -> int:
        """Bytes that its processes wrote."""
        return sum(call.output_bytes for call in self.calls)

    @property
    def waited(self) -> timedelta:
        """How long it waited for humans; questions that are open at the same time count once."""
        waited = timedelta()
        reached: datetime | None = None
        for item in sorted(self.approvals, key=lambda approval: approval.asked_at):
            if item.resolved_at is None:
                continue
            begin = item.asked_at if reached is None else max(item.asked_at, reached)
            waited += max(timedelta(), item.resolved_at - begin)
            reached = item.resolved_at if reached is None else max(item.resolved_at, reached)
        return waited


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs; what is None selects all."""

    conversation_id: ConversationId | None = None
    principal_id: PrincipalId | None = None
    state: TurnState | None = None
    since: datetime | None = None
    until: datetime | None = None
    """Those accepted at this moment are left out."""


@dataclass(frozen=True, slots=True)
class RunEntry:
    """What filters look at."""

    turn_id: TurnId
    state: TurnState
    created_at: datetime


class RunLog(Protocol):
    """Reading the registry."""

    async def entries(
        self,
        before: TurnId | None,
        limit: int,
        conversation_id: ConversationId | None,
        principal_id: PrincipalId | None,
    ) -> Sequence[RunEntry]:
        """List turns, newest first, beginning after `before`.

        Args:
            before: None for the newest.
            limit: How many at most.
            conversation_id: Only turns of this conversation.
            principal_id: Only turns of this principal.
        """
        ...

    async def run(self, turn_id: TurnId) -> Run:
        """Read a run.

        Raises:
            NotFound: There is no such turn.
        """
        ...
