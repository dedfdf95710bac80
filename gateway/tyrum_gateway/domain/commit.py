"""The unit of durability: everything one transition changes, handed to the store as one frozen value.

Invariant: a commit is applied whole or not at all, and only while the turn's stored version is the one the
transition started from. Code above the store never holds a transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from tyrum_gateway.domain.approval import Approval
from tyrum_gateway.domain.binding import Binding
from tyrum_gateway.domain.canonical import Value
from tyrum_gateway.domain.checkpoint import Checkpoint
from tyrum_gateway.domain.ids import ApprovalId, CallId, ConversationId, OverrideId, PrincipalId, TurnId
from tyrum_gateway.domain.override import Override
from tyrum_gateway.domain.process import ProcessResult
from tyrum_gateway.domain.states import TurnState
from tyrum_gateway.domain.token_day import TokenDay
from tyrum_gateway.domain.transcript import Event, Payload
from tyrum_gateway.domain.turn import Call, Turn
from tyrum_gateway.domain.usage import NOTHING, Usage


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One fact for the audit log, written in the commit that makes it true."""

    kind: str
    """Constant phrase in snake_case with a dot, such as `call.denied`."""
    actor: str
    """Principal id, or `kernel`."""
    subject: str
    """Id of what it is about."""
    details: Mapping[str, Value]
    """Further facts, without secrets and without process output."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the kernel keeps of a call's result, beside the event that ends the call."""

    call_id: CallId
    content: str
    """What the model gets."""
    process: ProcessResult | None


@dataclass(frozen=True, slots=True)
class Origin:
    """With what a turn is run; recorded when its message is accepted, for the run registry."""

    agent: str = "default"
    model: str = ""
    """Name of the model in the configuration."""
    backend: str = "native"
    """Execution backend."""
    session: str = ""
    """The backend's own context; empty for backends that keep none, such as `native`."""
    host: str = ""
    """Name of the machine."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A user's message: opens a turn, and the conversation when it is new."""

    turn: Turn
    """The new turn in state QUEUED; its number is assigned by the store."""
    opens_conversation: bool
    text: str
    request_id: str
    title: str
    """Used when the conversation is new."""
    max_queued: int
    """Unfinished turns the conversation may have, this one included."""
    max_unfinished: int
    """Unfinished turns its principal may have in all conversations, this one included."""
    audit: tuple[AuditEntry, ...]
    origin: Origin = Origin()
    sees_all: bool = False
    """Whether the sender may see the conversations of others: else another's does not exist for it."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One transition of one turn."""

    turn: Turn
    """New value; `turn.version` is the version that must still be stored."""
    at: datetime
    events: tuple[Payload, ...] = ()
    calls: tuple[Call, ...] = ()
    opened: tuple[Approval, ...] = ()
    """New questions."""
    resolved: tuple[Approval, ...] = ()
    """Questions that must still be pending, with their resolution."""
    overrides: tuple[Override, ...] = ()
    """Standing permissions that these resolutions create."""
    relies_on: tuple[OverrideId, ...] = ()
    """Standing permissions that must hold when this is applied: an operation begins on them."""
    bindings: tuple[Binding, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    checkpoint: Checkpoint | None = None
    stops: tuple[Call, ...] = ()
    """Calls that this settles while they execute: once it is durable, their processes are ended."""
    audit: tuple[AuditEntry, ...] = ()
    used: Usage = NOTHING
    """What this transition adds to the tokens of the turn's principal on the day of `at`."""


@dataclass(frozen=True, slots=True)
class QueuedBehind:
    """The turn of the same conversation that is answered before a message's own."""

    turn_id: TurnId
    state: TurnState
    approval_id: ApprovalId | None
    """What it waits for; set exactly in state WAITING_APPROVAL."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A durable message."""

    conversation_id: ConversationId
    turn: Turn
    sequence: int
    due: bool = field(default=False, compare=False)
    """Whether this very commit opened the turn while no other one of the conversation was unfinished."""
    behind: QueuedBehind | None = field(default=None, compare=False)
    """Filled in by the chat desk."""


class Committed(NamedTuple):
    """What a commit made."""

    turn: Turn
    """With its new version."""
    events: tuple[Event, ...]
    """With their sequences."""
    followed: bool
    """When the turn has ended: whether another one of its conversation is unfinished, in this very commit."""
    stops: tuple[Call, ...]
    """As the commit says: whoever learns of it ends them."""
    token_day: TokenDay | None = None
    """The day of the principal with what this commit adds; None when it adds nothing."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as lists show it."""

    conversation_id: ConversationId
    principal_id: PrincipalId
    principal: str
    """Name of the principal; empty when there is none of that id any more."""
    created_at: datetime
    updated_at: datetime
    last_sequence: int
    title: str
