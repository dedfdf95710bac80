"""Transitions made durable: apply an event to a turn, commit, wake the watchers.

Invariant: a transition that meets a newer turn is computed again from the stored one, so that neither a
provider's result nor a human's answer is lost to a race; one that no longer fits is dropped as a whole.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from weakref import WeakValueDictionary

import structlog

from tyrum_gateway.app.agent import EngineLimits
from tyrum_gateway.app.allowance import Allowance
from tyrum_gateway.app.approval_watch import ApprovalSignal
from tyrum_gateway.app.fold import fold
from tyrum_gateway.app.observer import Observer, Unobserved
from tyrum_gateway.app.past import Pasts
from tyrum_gateway.app.streams import Streams
from tyrum_gateway.app.working_time import WorkingTime
from tyrum_gateway.domain.approval import Approval, close
from tyrum_gateway.domain.binding import Binding
from tyrum_gateway.domain.checkpoint import Checkpoint, extend
from tyrum_gateway.domain.commit import Committed
from tyrum_gateway.domain.errors import Damaged, KernelBug, VersionConflict
from tyrum_gateway.domain.ids import CallId, ConversationId, OverrideId
from tyrum_gateway.domain.override import Override
from tyrum_gateway.domain.ports import Clock, Store
from tyrum_gateway.domain.process import ProcessResult
from tyrum_gateway.domain.states import CallState
from tyrum_gateway.domain.turn import Rest, Turn, work
from tyrum_gateway.domain.turn_events import (
    ApprovalAnswered,
    CloseApproval,
    Effect,
    Record,
    SaveCheckpoint,
    Transition,
    TurnEvent,
)
from tyrum_gateway.domain.turn_machine import advance
from tyrum_gateway.domain.usage import Usage

log = structlog.get_logger(__name__)

ROUNDS = 16
"""How often a transition is computed again before a conflict is reported as a bug."""

Ended = Callable[[Committed], None]
"""Told of each commit that ended a turn."""


class Turns:
    """Applies events to turns, durably."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        streams: Streams,
        approvals: ApprovalSignal,
        pasts: Pasts,
        limits: EngineLimits,
        allowance: Allowance,
        observer: Observer | None = None,
        ended: Ended | None = None,
    ) -> None:
        self._store = store
        self._pasts = pasts
        self._clock = clock
        self.time = WorkingTime(clock)
        self._streams = streams
        self._approvals = approvals
        self._limits = limits
        self._allowance = allowance
        self._observer = observer or Unobserved()
        self._ended = ended
        self._endings: WeakValueDictionary[ConversationId, asyncio.Lock] = WeakValueDictionary()

    async def apply(
        self,
        turn: Turn,
        *events: TurnEvent,
        previewed: Transition | None = None,
        resolved: tuple[Approval, ...] = (),
        overrides: tuple[Override, ...] = (),
        relies_on: tuple[OverrideId, ...] = (),
        bindings: tuple[Binding, ...] = (),
        results: Mapping[CallId, ProcessResult] | None = None,
    ) -> tuple[Turn, bool]:
        """Apply events as one commit, and follow it up.

        Args:
            turn: As stored.
            events: In order.
            previewed: What `preview` made of this turn and these events, where that is known already.
            resolved: Approvals with their resolutions.
            overrides: Standing permissions that these create.
            relies_on: Standing permissions that operations begin on.
            bindings: Of operations that begin.
            results: Process results of calls that end.

        Returns:
            The stored turn, and whether the events happened to it: one that came to rest meanwhile, or moved
            on so that they fit no more, is returned as it is.

        Raises:
            KernelBug: The events cannot happen to the turn as it was given.
            VersionConflict: An approval was resolved by somebody else.
            PermissionEnded: A standing permission that the events rely on does not hold any more.
        """
        given = turn
        for _ in range(ROUNDS):
            if turn.state.final:
                return turn, False
            if any(not _awaited(turn, event) for event in events):
                raise VersionConflict("the approval was resolved by somebody else", turn=turn.turn_id)
            try:
                transition, previewed = previewed or self.preview(Transition(turn, ()), events), None
            except KernelBug as unfit:
                if turn is given:
                    raise
                # Made by its own worker, who had been told that the store took no write.
                log.warning("transition_dropped", turn=turn.turn_id, reason=unfit.public)
                return turn, False
            async with self._ending(turn, transition.effects):
                moment = self.time.now()
                commit = fold(
                    self.time.corrected(turn, transition.turn, moment),
                    transition.effects,
                    at=moment.at,
                    resolved=(*resolved, *await self._closed(transition.effects)),
                    overrides=overrides,
                    relies_on=relies_on,
                    bindings=bindings,
                    results=results,
                    checkpoint=await self._checkpoint(turn, transition.effects),
                    used=_added(turn, transition.turn),
                )
                try:
                    began = time.perf_counter()
                    committed = await self._store.commit(commit)
                    self._observer.committed(commit, time.perf_counter() - began)
                except VersionConflict:
                    newer = (await self._store.turn(turn.turn_id)).turn
                    if newer.version == turn.version:
                        raise
                    turn = newer
                    continue
                stored, recorded, *_ = committed
                self._allowance.committed(committed)
                self.time.committed(stored.turn_id, moment)
                self._pasts.committed(stored, recorded, commit.checkpoint)
            if stored.state.final and self._ended is not None:
                self._ended(committed)
            resting = isinstance(work(stored), Rest)
            self._streams.committed(stored.conversation_id, recorded, resting=resting)
            if commit.opened or commit.resolved:
                self._approvals.changed()
            return stored, True
        raise KernelBug("a turn changed too often to be advanced", turn=turn.turn_id)

    def preview(self, begun: Transition, events: Iterable[TurnEvent]) -> Transition:
        """Tell what events would add to a transition, without a commit."""
        turn, effects = begun.turn, begun.effects
        for event in events:
            transition = advance(turn, event, self._limits.turn)
            turn, effects = transition.turn, effects + transition.effects
        return Transition(turn, effects)

    async def _closed(self, effects: tuple[Effect, ...]) -> tuple[Approval, ...]:
        now = self._clock.now()
        closing = [effect for effect in effects if isinstance(effect, CloseApproval)]
        return tuple(
            [
                close(await self._store.approval(effect.approval_id), effect.outcome, now, effect.reason)
                for effect in closing
            ]
        )

    def _ending(self, turn: Turn, effects: tuple[Effect, ...]) -> AbstractAsyncContextManager[None]:
        """Let turns of a conversation end one after another: each extends the checkpoint of the last.

        One ends by itself while another, which is queued behind it, is cancelled.
        """
        if not any(isinstance(effect, SaveCheckpoint) for effect in effects):
            return nullcontext()
        return self._endings.setdefault(turn.conversation_id, asyncio.Lock())

    async def _checkpoint(self, turn: Turn, effects: tuple[Effect, ...]) -> Checkpoint | None:
        if not any(isinstance(effect, SaveCheckpoint) for effect in effects):
            return None
        try:
            window = await self._pasts.own(turn)
        except Damaged as error:
            # The turn ends all the same; the conversation keeps the state that it had.
            log.error("checkpoint_left_out", turn=turn.turn_id, reason=error.public, **error.context)  # noqa: TRY400
            return None
        recorded = (effect.payload for effect in effects if isinstance(effect, Record))
        payloads = itertools.chain((event.payload for event in window.own), recorded)
        return extend(window.checkpoint, turn.number, payloads)


def _added(before: Turn, after: Turn) -> Usage:
    """Tell what a transition adds to the tokens of its turn."""
    return Usage(after.input_tokens - before.input_tokens, after.output_tokens - before.output_tokens)


def _awaited(turn: Turn, event: TurnEvent) -> bool:
    """Tell whether an answer, if it is one, still has a call that waits for it."""
    if not isinstance(event, ApprovalAnswered):
        return True
    asked = event.approval.approval_id
    return any(call.approval_id == asked and call.state is CallState.AWAITING_APPROVAL for call in turn.calls)
