"""The engine: which conversations have work, and a runner for each of them.

Invariants: one runner per conversation at a time, many conversations in parallel, with slots shared between
principals; a turn that waits for a human holds neither task nor connection; what needs work is what the rows
say, when they are read or in the answer of the very commit that changed them, and a wake-up only says where
to look.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from tyrum_gateway.app.agent import Agent, EngineLimits
from tyrum_gateway.app.alarms import Alarms
from tyrum_gateway.app.allowance import Allowance
from tyrum_gateway.app.approval_watch import ApprovalSignal
from tyrum_gateway.app.interrupt import Interrupts
from tyrum_gateway.app.observer import Observer
from tyrum_gateway.app.past import Pasts
from tyrum_gateway.app.proposals import Permissions, Proposals
from tyrum_gateway.app.runner import TurnRunner
from tyrum_gateway.app.slots import Slots
from tyrum_gateway.app.streams import Streams
from tyrum_gateway.app.turns import Turns
from tyrum_gateway.domain.commit import Accepted, Committed
from tyrum_gateway.domain.errors import Damaged, StateUnusable, TyrumError
from tyrum_gateway.domain.ids import ConversationId, IncidentId, PrincipalId
from tyrum_gateway.domain.ports import Clock, Ids, Store
from tyrum_gateway.domain.turn import Rest, Turn, work, worked
from tyrum_gateway.domain.turn_events import Broken

log = structlog.get_logger(__name__)

PAUSE = 1.0
"""Seconds until a conversation is taken up again after the store has failed; twice as many the next time."""

LONGEST_PAUSE = 60.0

_DAMAGED = "what is stored of this turn is damaged: the gateway's log says which row"

ROOM_SECONDS = 1.0
"""How long who wakes many waits for room: what is due stays undone while nobody leaves."""


class Engine:
    """Runs turns while its context is open."""

    def __init__(
        self,
        *,
        agent: Agent,
        store: Store,
        clock: Clock,
        ids: Ids,
        streams: Streams,
        limits: EngineLimits,
        permissions: Permissions | None = None,
        observer: Observer | None = None,
        alarms: Alarms | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._alarms = alarms or Alarms()
        self._ids = ids
        self._streams = streams
        self._turn_time = limits.turn_time.total_seconds()
        self._interrupts = Interrupts()
        self._concurrent = limits.concurrent_turns
        self._slots = Slots(limits.concurrent_turns)
        self._left = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False
        self._active: set[ConversationId] = set()
        self._again: set[ConversationId] = set()
        self._over: set[ConversationId] = set()
        """In work, and without an unfinished turn since the last commit that ended one."""
        self.approvals = ApprovalSignal()
        self.pasts = Pasts(store)
        self._allowance = Allowance(store=store, clock=clock, daily=limits.daily_tokens_per_principal)
        self.turns = Turns(
            store=store,
            clock=clock,
            streams=streams,
            approvals=self.approvals,
            pasts=self.pasts,
            limits=limits,
            allowance=self._allowance,
            observer=observer,
            ended=self._ended,
        )
        self._runner = TurnRunner(
            agent=agent,
            store=store,
            clock=clock,
            ids=ids,
            turns=self.turns,
            pasts=self.pasts,
            proposals=Proposals(
                agent=agent, clock=clock, ids=ids, limits=limits, pasts=self.pasts, permissions=permissions
            ),
            streams=streams,
            interrupts=self._interrupts,
            limits=limits,
            allowance=self._allowance,
            observer=observer,
            background=self._background,
        )

    async def run(self, started: asyncio.Event, stopping: asyncio.Event) -> None:
        """Take up what a former gateway left, then work until told to stop.

        Args:
            started: Set when new messages may be accepted.
            stopping: When set, conversations in work are given up where they are: their rows tell the next
                gateway what to do.
        """
        self._store.follow(self._unheard)
        async with asyncio.TaskGroup() as group:
            self._group = group
            for conversation_id, principal_id in await self._store.unfinished():
                self._wake(conversation_id, principal_id, recovered=True)
            started.set()
            await stopping.wait()
            self._group = None
            for task in self._tasks:
                task.cancel()

    @property
    def working(self) -> int:
        """Conversations in work."""
        return len(self._active)

    def drain(self) -> None:
        """Begin nothing more: turns in work go on to their rest, what is queued or answered stays."""
        self._draining = True

    async def idle(self) -> None:
        """Return when no conversation is in work; used to drain."""
        await self._idle.wait()

    async def room(self) -> int:
        """Return when fewer than half of the turns that may be worked on at once are, and how many fewer.

        For who wakes many conversations of its own accord: whoever else comes still finds a free slot. A
        gateway that is busy for longer has room for one every `ROOM_SECONDS`.
        """
        try:
            async with asyncio.timeout(ROOM_SECONDS):
                while (room := max(1, self._concurrent // 2) - len(self._active)) <= 0:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            return 1
        return room

    def wake(self, turn: Turn, *, due: bool = False) -> None:
        """Note that the conversation of a turn has work.

        Args:
            turn: As stored; its principal takes the slot.
            due: Whether it is the turn to work on: accepted when the conversation had no other one.
        """
        self._wake(turn.conversation_id, turn.principal_id, turn if due else None, recovered=False)

    def _ended(self, end: Committed) -> None:
        """Follow up a commit that ended a turn, by itself or by force: end its work, go on with the next."""
        conversation_id = end.turn.conversation_id
        self._interrupts.interrupt(end.turn.turn_id)
        for call in end.stops:
            self._background(self._runner.stop(end.turn, call))
        if end.followed:
            self._over.discard(conversation_id)
            self.wake(end.turn)
        elif conversation_id in self._active:
            self._over.add(conversation_id)

    def _unheard(self, made: Accepted | Committed) -> None:
        """Follow up a write whose maker had given up: whoever watches or works looks at the rows."""
        conversation_id = made.turn.conversation_id
        self.pasts.forget(conversation_id)
        self._streams.unannounced(conversation_id)
        self.approvals.changed()
        if isinstance(made, Committed):
            self._allowance.committed(made)
            if made.turn.state.final:
                self._ended(made)
        self.wake(made.turn)

    def _wake(
        self,
        conversation_id: ConversationId,
        principal_id: PrincipalId,
        due: Turn | None = None,
        *,
        recovered: bool,
    ) -> None:
        if conversation_id in self._active:
            self._again.add(conversation_id)
        elif self._group is not None:
            self._active.add(conversation_id)
            self._idle.clear()
            self._spawn(self._group, self._serve(conversation_id, principal_id, due, recovered=recovered))

    async def _serve(
        self,
        conversation_id: ConversationId,
        principal_id: PrincipalId,
        due: Turn | None,
        *,
        recovered: bool,
    ) -> None:
        try:
            pause = PAUSE
            while not self._draining:
                self._again.discard(conversation_id)
                try:
                    async with self._slots.held(principal_id):
                        rests = await self._take_up(conversation_id, due, recovered=recovered)
                    due = None
                    if rests and conversation_id not in self._again:
                        return
                    recovered, pause = False, PAUSE
                    continue
                except Damaged as error:
                    self._alarms.noticed(error)
                    if not await self._abandon(conversation_id, error):
                        return
                except StateUnusable as error:
                    # A full disk, say. What was in work is given up as at a crash; rows tell how to go on.
                    self._alarms.noticed(error)
                    log.error("store_failed", conversation=conversation_id, reason=error.public)  # noqa: TRY400
                except Exception:
                    # An error that was not foreseen holds up its own conversation and no other.
                    log.exception("conversation_broken", conversation=conversation_id)
                await asyncio.sleep(pause)
                due, recovered, pause = None, True, min(2 * pause, LONGEST_PAUSE)
        finally:
            self._active.discard(conversation_id)
            self._over.discard(conversation_id)
            self._left.set()
            if not self._active:
                self._idle.set()

    async def _take_up(self, conversation_id: ConversationId, due: Turn | None, *, recovered: bool) -> bool:
        """Work on the next turn, which is read unless it is known; return whether the conversation rests."""
        turn = due or await self._store.next_turn(conversation_id)
        if turn is None or isinstance(work(turn), Rest):
            return True
        if not self._draining:
            self._over.discard(conversation_id)
            await self._drive(turn, recovered=recovered)
        return conversation_id in self._over

    async def _drive(self, turn: Turn, *, recovered: bool) -> None:
        reason = f"the turn was worked on for more than {self._turn_time:g} s"
        try:
            with self._interrupts.working(turn.turn_id):
                if recovered:
                    turn = await self._runner.take_up(turn)
                with self.turns.time.measured(turn):
                    if await self._in_time(turn, self._turn_time - worked(turn).total_seconds()):
                        return
        except Damaged as error:
            self._alarms.noticed(error)
            log.error("turn_damaged", turn=turn.turn_id, reason=error.public, **error.context)  # noqa: TRY400
            reason = _DAMAGED
        except StateUnusable:
            raise
        except Exception:
            # One conversation must not take the gateway down, and its turn must not hang: settle it.
            incident = self._ids.new(IncidentId)
            log.exception("turn_broken", turn=turn.turn_id, incident=incident)
            reason = f"internal error, incident {incident}"
        newest = (await self._store.turn(turn.turn_id)).turn
        await self.turns.apply(newest, Broken(reason))

    async def _abandon(self, conversation_id: ConversationId, error: Damaged) -> bool:
        """End a turn whose own rows cannot be read; False when not even that can ever be stored.

        The conversation is left alone then, until the next start: reading it again would not help.
        """
        log.error("conversation_damaged", conversation=conversation_id, reason=error.public, **error.context)
        try:
            ended = await self._store.abandon(conversation_id, _DAMAGED, self._clock.now())
        except Damaged as worse:
            log.error("conversation_left_alone", conversation=conversation_id, reason=worse.public)  # noqa: TRY400
            return False
        except StateUnusable as later:
            log.error("store_failed", conversation=conversation_id, reason=later.public)  # noqa: TRY400
            return True
        except Exception:
            # Rows that refer to what is not there, say: no other conversation must end with this one.
            log.exception("conversation_left_alone", conversation=conversation_id)
            return False
        self.pasts.forget(conversation_id)
        self._streams.unannounced(conversation_id)
        self.approvals.changed()
        return ended

    async def _in_time(self, turn: Turn, seconds: float) -> bool:
        """Work on the turn until it rests; False when its time is over."""
        if seconds <= 0:
            return False
        bound = asyncio.timeout(seconds)
        try:
            async with bound:
                await self._runner.drive(turn)
        except StateUnusable:
            raise
        except Exception:
            if not bound.expired():
                raise
            return False
        return True

    def _spawn(self, group: asyncio.TaskGroup, job: Coroutine[Any, Any, None]) -> None:
        task = group.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _background(self, job: Coroutine[Any, Any, None]) -> None:
        if self._group is None:
            job.close()
            return
        self._spawn(self._group, self._quietly(job))

    async def _quietly(self, job: Coroutine[Any, Any, None]) -> None:
        try:
            await job
        except TyrumError as error:
            log.warning("follow_up_failed", reason=error.public, **error.context)
        except Exception:
            # What follows a commit is best effort: it must not take the gateway down.
            log.exception("follow_up_broken")
