"""The chat desk: accept messages, watch and cancel turns, read conversations back."""

import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import replace

from tyrum_gateway.app.agent import EngineLimits
from tyrum_gateway.app.engine import Engine
from tyrum_gateway.app.finishing import Finishing
from tyrum_gateway.app.streams import LiveItem, Streams
from tyrum_gateway.app.watch import watch
from tyrum_gateway.domain.commit import Acceptance, Accepted, AuditEntry, Conversation, Origin, QueuedBehind
from tyrum_gateway.domain.errors import Draining, InvalidRequest, NotAuthorized, NotFound
from tyrum_gateway.domain.ids import ConversationId, TurnId
from tyrum_gateway.domain.ports import Clock, Ids, Store, TurnView
from tyrum_gateway.domain.principal import Principal, Role
from tyrum_gateway.domain.states import TurnState
from tyrum_gateway.domain.transcript import Event, UserMessage
from tyrum_gateway.domain.turn import Turn, current_call
from tyrum_gateway.domain.turn_events import CancelRequested

_SEES_ALL = frozenset({Role.OPERATOR, Role.AUDITOR, Role.ADMIN})
_ACTS_FOR_ALL = frozenset({Role.OPERATOR, Role.ADMIN})
"""An auditor looks; with `chat` besides, an auditor cancels no more than anybody with `chat`."""


class ChatDesk:
    """What chat clients may do."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: Ids,
        engine: Engine,
        streams: Streams,
        limits: EngineLimits,
        origin: Origin,
    ) -> None:
        """Prepare the desk.

        Args:
            store: The durable truth.
            clock: Wall-clock time.
            ids: Fresh identifiers.
            engine: Works on what is accepted.
            streams: Told of what is accepted.
            limits: Bounds on conversations.
            origin: With what accepted turns are run, for the registry.
        """
        self._origin = origin
        self._store = store
        self._clock = clock
        self._ids = ids
        self._engine = engine
        self._streams = streams
        self._limits = limits
        self._draining = False
        self._finishing = Finishing()

    def drain(self) -> None:
        """Take no new messages from now on."""
        self._draining = True

    async def converse(
        self, principal: Principal, conversation_id: ConversationId | None, request_id: str, text: str
    ) -> AsyncGenerator[Sequence[Accepted | Event | LiveItem], None]:
        """Accept a message durably and have it answered; yield the acceptance, then what its turn brings.

        A message that was accepted before under its request id is not accepted again: its turn is shown
        from the beginning.

        Raises:
            Draining: The gateway is shutting down.
            NotFound: The conversation does not exist or is not visible.
            NotOwner: The conversation is another principal's: no role permits to speak in it.
            RequestIdReused: The request id was used for another message.
            QuotaExceeded: Too many messages wait in the conversation, or of the principal in all of them.
        """
        if self._draining:
            raise Draining("the gateway is shutting down: retry with the same request id")
        now = self._clock.now()
        turn = Turn(
            turn_id=self._ids.new(TurnId),
            conversation_id=conversation_id or self._ids.new(ConversationId),
            principal_id=principal.principal_id,
            state=TurnState.QUEUED,
            created_at=now,
        )
        digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        acceptance = Acceptance(
            turn=turn,
            opens_conversation=conversation_id is None,
            text=text,
            request_id=request_id,
            title=_title(text),
            max_queued=self._limits.queued_per_conversation,
            max_unfinished=self._limits.unfinished_per_principal,
            origin=self._origin,
            sees_all=bool(principal.roles & _SEES_ALL),
            audit=(
                AuditEntry(
                    "message.accepted",
                    principal.principal_id,
                    turn.turn_id,
                    {"conversation": turn.conversation_id, "text": digest, "method": principal.method},
                ),
            ),
        )
        with ExitStack() as joining:
            # A stream that was begun before the commit is handed all that follows it.
            joined = joining.enter_context(self._streams.subscribe(turn.conversation_id))
            accepted = await self._finishing.run(self._accept(acceptance))
            fresh = accepted.turn.turn_id == turn.turn_id
            if not fresh:
                joining.close()  # it began after the commit: nobody would take what it is handed
            yield [replace(accepted, behind=await self._behind(accepted))]
            following = watch(
                self._store,
                self._streams,
                accepted.conversation_id,
                accepted.sequence,
                until=accepted.turn.turn_id,
                joined=joined if fresh else None,
            )
            async with aclosing(following) as stream:
                async for items in stream:
                    yield items

    async def _accept(self, acceptance: Acceptance) -> Accepted:
        accepted = await self._store.accept(acceptance)
        message = Event(
            accepted.sequence,
            accepted.conversation_id,
            accepted.turn.turn_id,
            accepted.turn.created_at,
            UserMessage(acceptance.text, acceptance.turn.principal_id),
        )
        self._engine.pasts.accepted(accepted.turn, message)
        self._streams.committed(accepted.conversation_id, (message,), resting=False)
        self._engine.wake(accepted.turn, due=accepted.due)
        return accepted

    async def _behind(self, accepted: Accepted) -> QueuedBehind | None:
        """Tell what an accepted message waits behind; one that was not alone is looked up."""
        if accepted.due or accepted.turn.state is not TurnState.QUEUED:
            return None
        ahead = await self._store.next_turn(accepted.conversation_id)
        if ahead is None or ahead.number >= accepted.turn.number:
            return None
        call = current_call(ahead) if ahead.state is TurnState.WAITING_APPROVAL else None
        return QueuedBehind(ahead.turn_id, ahead.state, call.approval_id if call else None)

    def watch(
        self, conversation_id: ConversationId, after: int
    ) -> AsyncGenerator[Sequence[Event | LiveItem], None]:
        """Watch a conversation that was checked to be visible; see `watch`."""
        return watch(self._store, self._streams, conversation_id, after)

    async def cancel(self, principal: Principal, turn_id: TurnId, reason: str) -> TurnView:
        """Settle a turn as cancelled, with its calls and questions; a turn that rests stays as it is.

        Raises:
            NotFound: The turn does not exist or is not visible.
            NotAuthorized: It is somebody else's, and the principal may only see it.
        """
        view = await self._store.turn(turn_id)
        own = await self._concerns(principal, view.turn)
        if not own and not principal.roles & _SEES_ALL:
            raise NotFound("turn", turn_id)
        if not own and not principal.roles & _ACTS_FOR_ALL:
            raise NotAuthorized("cancelling what others sent needs the role `operator` or `admin`")
        why = f"cancelled by {principal.name}" + (f": {reason}" if reason else "")
        await self._finishing.run(self._engine.turns.apply(view.turn, CancelRequested(why)))
        return await self._store.turn(turn_id)

    async def turn(self, principal: Principal, turn_id: TurnId) -> TurnView:
        """Read a turn.

        Raises:
            NotFound: The turn does not exist or is not visible.
        """
        view = await self._store.turn(turn_id)
        if not principal.roles & _SEES_ALL and not await self._concerns(principal, view.turn):
            raise NotFound("turn", turn_id)
        return view

    async def _concerns(self, principal: Principal, turn: Turn) -> bool:
        """Tell whether the principal sent the turn's message, or opened the conversation that it is in.

        The two differ only in conversations of before others were refused.
        """
        if turn.principal_id == principal.principal_id:
            return True
        owner = (await self._store.conversation(turn.conversation_id)).principal_id
        return owner == principal.principal_id

    async def conversation(self, principal: Principal, conversation_id: ConversationId) -> Conversation:
        """Read a conversation.

        Raises:
            NotFound: The conversation does not exist or is not visible.
        """
        found = await self._store.conversation(conversation_id)
        if found.principal_id != principal.principal_id and not principal.roles & _SEES_ALL:
            raise NotFound("conversation", conversation_id)
        return found

    async def conversations(
        self, principal: Principal, before: ConversationId | None, limit: int
    ) -> Sequence[Conversation]:
        """List the conversations a principal may see, newest first."""
        owner = None if principal.roles & _SEES_ALL else principal.principal_id
        return await self._store.conversations(owner, before, limit)

    async def events(
        self, principal: Principal, conversation_id: ConversationId, after: int, limit: int
    ) -> Sequence[Event]:
        """Read a page of the transcript.

        Raises:
            NotFound: The conversation does not exist or is not visible.
            InvalidRequest: `after` is negative.
        """
        if after < 0:
            raise InvalidRequest("after_sequence", "must not be negative")
        await self.conversation(principal, conversation_id)
        return await self._store.events(conversation_id, after, limit)


def _title(text: str) -> str:
    first = text.strip().splitlines()[0] if text.strip() else ""
    return first[:120]
