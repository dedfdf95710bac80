"""What can happen to a turn, and what follows from it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from tyrum_gateway.domain import transcript
from tyrum_gateway.domain.approval import Approval, Outcome
from tyrum_gateway.domain.ids import ApprovalId, BindingId, CallId, OperationId, ProcessId
from tyrum_gateway.domain.policy import Verdict
from tyrum_gateway.domain.states import CallState
from tyrum_gateway.domain.turn import Call, Turn
from tyrum_gateway.domain.usage import UNKNOWN, Usage


@dataclass(frozen=True, slots=True)
class Claimed:
    """The turn is the next of its conversation."""

    at: datetime


@dataclass(frozen=True, slots=True)
class TakenUp:
    """Work that was interrupted, by a crash or a failing store, goes on."""

    at: datetime
    unseen: timedelta
    """How much of the time since the newest commit counts as work at most; the rest is an outage."""


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """A call as the model asked for it, with what the kernel made of it."""

    call_id: CallId
    tool: str
    arguments: str
    verdict: Verdict | None
    """None when the call is invalid: then `rejection` says why."""
    rejection: str = ""
    approval: Approval | None = None
    """The question to ask, exactly when the verdict requires approval."""


@dataclass(frozen=True, slots=True)
class StepGenerated:
    """The model's protocol ended properly and every argument parsed."""

    step: int
    attempt: int
    text: str
    calls: tuple[ProposedCall, ...]
    usage: Usage = UNKNOWN
    model: str = ""
    """Name of the model that answered; empty when it is not known."""


@dataclass(frozen=True, slots=True)
class StepFailed:
    """The model was cut off, refused or unreachable."""

    step: int
    attempt: int
    text: str
    """What had been emitted."""
    reason: str
    retryable: bool
    retry_after: timedelta | None = None
    """How long the model's server asks to be left alone; for whoever begins the next attempt."""
    usage: Usage = UNKNOWN


@dataclass(frozen=True, slots=True)
class AttemptLost:
    """A crash ended the attempt; nothing of it is known."""

    reason: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """Operation and binding are about to be committed; the provider is called after that."""

    call_id: CallId
    operation_id: OperationId
    process_id: ProcessId | None
    binding_id: BindingId | None


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call that was executing, or could not begin, has a final state."""

    call_id: CallId
    state: CallState
    content: str
    process: transcript.ProcessEnded | None = None


@dataclass(frozen=True, slots=True)
class ApprovalAnswered:
    """An approval got its outcome."""

    approval: Approval


@dataclass(frozen=True, slots=True)
class SubjectChanged:
    """What was decided on no longer holds, and nothing ran: ask again, never rebind."""

    call_id: CallId
    superseded: Approval | None
    """The approval that no longer counts; None when a rule had permitted the call."""
    approval: Approval
    reason: str = "what would run is no longer what was approved"
    """Why the superseded approval no longer counts."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody ends the turn."""

    reason: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The kernel itself failed while it worked on the turn: settle everything, honestly."""

    reason: str


TurnEvent = (
    Claimed
    | TakenUp
    | StepGenerated
    | StepFailed
    | AttemptLost
    | CallBegun
    | CallEnded
    | ApprovalAnswered
    | SubjectChanged
    | CancelRequested
    | Broken
)
"""Everything that can happen to a turn."""


@dataclass(frozen=True, slots=True)
class Record:
    """Append to the transcript."""

    payload: transcript.Payload


@dataclass(frozen=True, slots=True)
class SaveCall:
    """Store the call's new row."""

    call: Call


@dataclass(frozen=True, slots=True)
class OpenApproval:
    """Store a question."""

    approval: Approval


@dataclass(frozen=True, slots=True)
class CloseApproval:
    """End a pending question without a human."""

    approval_id: ApprovalId
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class StopProcess:
    """End the process of a call once the commit is durable."""

    call: Call


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Extend the conversation state by this turn."""


Effect = Record | SaveCall | OpenApproval | CloseApproval | StopProcess | SaveCheckpoint
"""What follows from a transition, all of it in one commit."""


@dataclass(frozen=True, slots=True)
class Transition:
    """The new turn and what follows."""

    turn: Turn
    effects: tuple[Effect, ...]
