"""What the kernel needs from outside. Adapters implement these; nothing here knows how.

Every method of `Store` that reads is bounded by an index, whatever the length of a conversation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol, TypeVar

from tyrum_gateway.domain.approval import Approval
from tyrum_gateway.domain.binding import Binding
from tyrum_gateway.domain.checkpoint import Checkpoint
from tyrum_gateway.domain.commit import Acceptance, Accepted, AuditEntry, Commit, Committed, Conversation
from tyrum_gateway.domain.ids import (
    ApprovalId,
    BindingId,
    ConversationId,
    EntityId,
    OverrideId,
    PrincipalId,
    TurnId,
)
from tyrum_gateway.domain.override import Override
from tyrum_gateway.domain.past_turn import PastTurn
from tyrum_gateway.domain.principal import Principal
from tyrum_gateway.domain.states import CallState
from tyrum_gateway.domain.token_day import TokenDay
from tyrum_gateway.domain.tool import Execution
from tyrum_gateway.domain.transcript import Event
from tyrum_gateway.domain.turn import Turn

Id = TypeVar("Id", bound=EntityId)


class Clock(Protocol):
    """Wall-clock time."""

    def now(self) -> datetime:
        """Return the time in UTC."""
        ...


class Ids(Protocol):
    """Fresh identifiers."""

    def new(self, kind: type[Id]) -> Id:
        """Make an identifier that never existed before."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """What one attempt's prompt is built from."""

    checkpoint: Checkpoint
    earlier: tuple[PastTurn, ...]
    """Newest events of earlier turns, turn by turn."""
    complete: bool
    """Whether `earlier` reaches back to the first event."""
    own: tuple[Event, ...]
    """All events of the turn itself, in order."""


@dataclass(frozen=True, slots=True)
class TurnView:
    """A turn as clients see it."""

    turn: Turn
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class BoundOperation:
    """A binding with the time of its commit."""

    binding: Binding
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ExecutedCall:
    """A call that was begun: the names it executes under, and whether its outcome is committed."""

    execution: Execution
    state: CallState


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run that a provider has a record of."""

    operation_id: str
    """As the provider tells it."""
    running: bool


class RunRecords(Protocol):
    """What the provider of one profile has recorded of runs."""

    async def admitted_again(self, seen: int) -> int:
        """Return how often the provider has become admitted, as soon as that is more than `seen` times."""
        ...

    async def recorded(self) -> Sequence[RecordedRun]:
        """List the runs that it has a record of.

        Raises:
            ProviderUnavailable: It cannot be asked now.
        """
        ...

    def serves(self, execution: Execution) -> bool:
        """Tell whether the operation is bound to the profile."""
        ...

    async def cancel(self, execution: Execution) -> None:
        """End the command tree, best effort."""
        ...

    async def release(self, execution: Execution) -> None:
        """Let it forget an ended run, best effort."""
        ...


class OverrideStore(Protocol):
    """Standing permissions; created by `Store.commit` together with the answer that gives them."""

    async def of_agent(self, agent: str, now: datetime, limit: int) -> Sequence[Override]:
        """Read what is in force for an agent, newest first, at most `limit`."""
        ...

    async def get(self, override_id: OverrideId) -> Override:
        """Read an override.

        Raises:
            NotFound: There is no such override.
        """
        ...

    async def page(self, before: OverrideId | None, limit: int) -> Sequence[Override]:
        """List overrides, whether in force or not, newest first, beginning after `before`."""
        ...

    async def revoke(self, override: Override, audit: AuditEntry) -> Override:
        """Store the revocation that an override carries, unless it was revoked before; return what is stored.

        Raises:
            NotFound: There is no such override.
        """
        ...


class Store(Protocol):
    """The durable truth. One writer; every write is one commit."""

    @property
    def overrides(self) -> OverrideStore:
        """Standing permissions."""
        ...

    async def accept(self, acceptance: Acceptance) -> Accepted:
        """Make a message durable; the same request again returns the first acceptance.

        Raises:
            RequestIdReused: The principal used the request id for another text or conversation.
            QuotaExceeded: The conversation has `max_queued` unfinished turns, or the principal
                `max_unfinished`.
            NotFound: The conversation does not exist, or not for the sender.
            NotOwner: The conversation is another principal's.
        """
        ...

    async def commit(self, commit: Commit) -> Committed:
        """Apply a transition and return what it made.

        Raises:
            VersionConflict: The turn's stored version differs, or an approval is no longer pending. Nothing
                was changed.
            PermissionEnded: A standing permission that it relies on does not hold. Nothing was changed.
        """
        ...

    def follow(self, unheard: Callable[[Accepted | Committed], None]) -> None:
        """Tell of each acceptance and commit that nobody followed up.

        It was applied after its caller had given up: cancelled, or told that the database took too long.
        """
        ...

    async def record(self, entries: Sequence[AuditEntry], at: datetime) -> None:
        """Append facts to the audit log that no turn causes, in one commit."""
        ...

    async def abandon(self, conversation_id: ConversationId, reason: str, at: datetime) -> bool:
        """Fail the oldest unfinished turn of a conversation without reading its rows; False when it has none.

        For rows that are damaged: how far a call of the turn came is unknown then.

        Raises:
            Damaged: Not even its end can be stored.
        """
        ...

    async def turn(self, turn_id: TurnId) -> TurnView:
        """Read a turn with the calls of its present step.

        Raises:
            NotFound: There is no such turn.
        """
        ...

    async def next_turn(self, conversation_id: ConversationId) -> Turn | None:
        """Read the oldest turn of the conversation that is not final; None when all rest."""
        ...

    async def token_day(self, principal_id: PrincipalId, day: date) -> TokenDay:
        """Read what a principal used on a day."""
        ...

    async def unfinished(self) -> Sequence[tuple[ConversationId, PrincipalId]]:
        """List conversations whose next turn is queued or running, and whose, for the gateway's start."""
        ...

    async def window(self, turn: Turn, size: int) -> Window:
        """Read what a prompt of the turn is built from, at most `size` events of earlier turns."""
        ...

    async def events(self, conversation_id: ConversationId, after: int, limit: int) -> Sequence[Event]:
        """Read events after a sequence, in order."""
        ...

    async def conversation(self, conversation_id: ConversationId) -> Conversation:
        """Read a conversation.

        Raises:
            NotFound: There is no such conversation.
        """
        ...

    async def conversations(
        self, owner: PrincipalId | None, before: ConversationId | None, limit: int
    ) -> Sequence[Conversation]:
        """List conversations of an owner (None: of all), newest first, beginning after `before`."""
        ...

    async def approval(self, approval_id: ApprovalId) -> Approval:
        """Read an approval.

        Raises:
            NotFound: There is no such approval.
        """
        ...

    async def approvals(
        self,
        *,
        conversation_id: ConversationId | None,
        include_resolved: bool,
        after: ApprovalId | None,
        limit: int,
    ) -> Sequence[Approval]:
        """List approvals, oldest first, beginning after `after`."""
        ...

    async def next_expiry(self) -> datetime | None:
        """Return when the first pending approval expires."""
        ...

    async def expired(self, now: datetime, limit: int) -> Sequence[Approval]:
        """List pending approvals whose time is over."""
        ...

    async def bindings(self, before: str, limit: int) -> Sequence[BoundOperation]:
        """List bindings, newest first, beginning after the binding id `before` (empty: the newest)."""
        ...

    async def binding(self, binding_id: BindingId) -> Binding:
        """Read a binding.

        Raises:
            NotFound: There is no such binding.
        """
        ...

    async def executed(self, operation_id: str) -> ExecutedCall | None:
        """Read the call that began an operation of a provider; None when no call did."""
        ...

    async def principal_by_token(self, token_sha256: str, now: datetime) -> Principal | None:
        """Find whose token it is; None when unknown, expired or revoked."""
        ...

    async def ensure_principal(
        self, principal_id: PrincipalId, name: str, roles: Sequence[str], token_sha256: str, now: datetime
    ) -> PrincipalId:
        """Create the named principal with a token unless it exists; return its id.

        An existing principal keeps its roles and gets the token as its only one.
        """
        ...
