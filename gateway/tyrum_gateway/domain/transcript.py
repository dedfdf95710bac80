"""The transcript: append-only events of a conversation.

Invariant: events are only ever appended, with a sequence per conversation from 1 and without holes; they
are readable without any provider. Process output is not part of them: `ToolCallFinished.content` is kept as
bounded evidence beside the event.
"""

from dataclasses import dataclass
from datetime import datetime

from tyrum_gateway.domain.approval import Outcome
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
from tyrum_gateway.domain.policy import Decision
from tyrum_gateway.domain.process import EndCause
from tyrum_gateway.domain.states import CallState, TurnState


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What a principal sent."""

    text: str
    principal_id: PrincipalId


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """Text of one attempt of one step."""

    step: int
    attempt: int
    text: str
    incomplete: bool = False


@dataclass(frozen=True, slots=True)
class ToolCallProposed:
    """The model's request as it came."""

    call_id: CallId
    step: int
    tool: str
    arguments: str
    """JSON as the model wrote it."""


@dataclass(frozen=True, slots=True)
class ToolCallDecided:
    """The policy's decision and what it rested on."""

    call_id: CallId
    decision: Decision
    rule_id: str
    policy_digest: str
    target: str
    reason: str
    author: str = ""
    """Who answers for the rule: with an allow, whose standing approval it is. Empty for the defaults."""


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """A human is asked."""

    call_id: CallId
    approval_id: ApprovalId
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class ApprovalResolved:
    """How a question ended, and who ended it."""

    call_id: CallId
    approval_id: ApprovalId
    outcome: Outcome
    resolved_by: str
    method: str
    reason: str
    origin: str = ""
    """From where: the transport and what it proved of the peer."""
    override_id: OverrideId | None = None
    """The standing permission that the answer created too."""


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """Binding and operation are durable; the effect may begin."""

    call_id: CallId
    operation_id: OperationId
    binding_id: BindingId | None
    process_id: ProcessId | None


@dataclass(frozen=True, slots=True)
class OutputDigest:
    """Identifies a stream's bytes without carrying them."""

    total_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """How the command of a call ended."""

    cause: EndCause
    exit_code: int | None
    signal: int | None
    duration_ms: int
    stdout: OutputDigest
    stderr: OutputDigest


@dataclass(frozen=True, slots=True)
class ToolCallFinished:
    """The final state of a call."""

    call_id: CallId
    state: CallState
    content: str
    """What the model gets; stored as evidence, joined back when read."""
    process: ProcessEnded | None = None


@dataclass(frozen=True, slots=True)
class AttemptAbandoned:
    """The text of an attempt does not count."""

    step: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """How a turn ended."""

    state: TurnState
    reason: str = ""


Payload = (
    UserMessage
    | AssistantMessage
    | ToolCallProposed
    | ToolCallDecided
    | ApprovalRequested
    | ApprovalResolved
    | ToolCallStarted
    | ToolCallFinished
    | AttemptAbandoned
    | TurnFinished
)
"""Everything a transcript can say."""


@dataclass(frozen=True, slots=True)
class Event:
    """A committed entry."""

    sequence: int
    conversation_id: ConversationId
    turn_id: TurnId
    created_at: datetime
    payload: Payload

    @property
    def characters(self) -> int:
        """Length of what may be long in it; the rest is short."""
        match self.payload:
            case UserMessage(text=text) | AssistantMessage(text=text):
                return len(text)
            case ToolCallProposed(tool=tool, arguments=arguments):
                return len(tool) + len(arguments)  # a model may name what does not exist, at any length
            case ToolCallDecided(rule_id=rule, target=target, reason=reason):
                return len(rule) + len(target) + len(reason)
            case ToolCallFinished(content=text) | AttemptAbandoned(reason=text) | TurnFinished(reason=text):
                return len(text)
            case _:
                return 0
