"""Turns and their calls, and what a turn needs next.

What to do next is a function of the turn alone (`work`), so that a restart continues from rows and never
from memory.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from tyrum_gateway.domain.ids import (
    ApprovalId,
    BindingId,
    CallId,
    ConversationId,
    OperationId,
    PrincipalId,
    ProcessId,
    TurnId,
)
from tyrum_gateway.domain.states import CallState, TurnState


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """Caps that end a turn which would not end by itself."""

    steps: int
    """Model steps a turn may take, >= 1."""
    attempts: int
    """Attempts of a step that may fail, >= 1; as many more may be lost to restarts."""
    tokens: int | None = None
    """Reported tokens, of both kinds, after which the model is not asked again; None: no bound."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of the present step."""

    call_id: CallId
    turn_id: TurnId
    step: int
    index: int
    tool: str
    arguments: str
    state: CallState
    rule_id: str = ""
    approval_id: ApprovalId | None = None
    operation_id: OperationId | None = None
    process_id: ProcessId | None = None
    binding_id: BindingId | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One message and everything done to answer it."""

    turn_id: TurnId
    conversation_id: ConversationId
    principal_id: PrincipalId
    state: TurnState
    created_at: datetime
    number: int = 0
    """Position among the turns of the conversation, from 1; assigned when the message is accepted."""
    version: int = 0
    """Version of the stored row this value was read from; the store compares and increments it."""
    step: int = 0
    attempt: int = 0
    lost: int = 0
    """Attempts of the present step that ended with the gateway and not by their model."""
    working_since: datetime | None = None
    """When the present work would have begun had it never been interrupted; None until the claim."""
    changed_at: datetime | None = None
    """Time of the newest commit, set by the store."""
    calls: tuple[Call, ...] = ()
    """Calls of the present step, in order."""
    reason: str = ""
    input_tokens: int = 0
    """Sum over the steps whose model told."""
    output_tokens: int = 0
    usage_complete: bool = True
    """False when a step's model told no usage: then the sums are lower bounds."""
    answered_by: tuple[str, ...] = ()
    """Names of the models that answered its steps, in the order in which each first did."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Begin the turn."""


@dataclass(frozen=True, slots=True)
class Generate:
    """Ask the model for the present attempt."""

    step: int
    attempt: int


@dataclass(frozen=True, slots=True)
class BeginCall:
    """Execute this call."""

    call: Call


@dataclass(frozen=True, slots=True)
class SettleCall:
    """The call was handed to a provider: learn what became of it, never repeat it."""

    call: Call


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do until somebody else acts, or for ever."""


Work = Claim | Generate | BeginCall | SettleCall | Rest
"""What a turn needs next."""


def work(turn: Turn) -> Work:
    """Tell what the turn needs next, from its durable state alone."""
    match turn.state:
        case TurnState.QUEUED:
            return Claim()
        case TurnState.RUNNING:
            call = current_call(turn)
            if call is None:
                return Generate(turn.step, turn.attempt)
            return SettleCall(call) if call.state is CallState.EXECUTING else BeginCall(call)
        case TurnState.WAITING_APPROVAL | TurnState.COMPLETED | TurnState.FAILED | TurnState.CANCELLED:
            return Rest()
        case _:
            assert_never(turn.state)


def worked(turn: Turn) -> timedelta:
    """Tell how long a turn had been worked on since its claim or last answer when it was last committed."""
    if turn.working_since is None or turn.changed_at is None:
        return timedelta()
    return max(turn.changed_at - turn.working_since, timedelta())


def current_call(turn: Turn) -> Call | None:
    """Find the first call of the step that has no final state."""
    for call in turn.calls:
        if not call.state.final:
            return call
    return None
