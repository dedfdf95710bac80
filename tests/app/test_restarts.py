"""What a turn has used up outlives the gateway, and an outage or a crash uses up no more than its share."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.storage.builders import asked, begin, call, message, now, resolved, running
from tyrum_gateway.app.agent import Agent, EngineLimits
from tyrum_gateway.app.engine import Engine
from tyrum_gateway.app.streams import Streams
from tyrum_gateway.app.withdrawn import Withdrawn
from tyrum_gateway.bootstrap.system import RandomIds
from tyrum_gateway.domain.approval import Outcome
from tyrum_gateway.domain.errors import ModelUnavailable
from tyrum_gateway.domain.ids import TurnId
from tyrum_gateway.domain.model import ModelEvent, Prompt, StepEnd, TextDelta
from tyrum_gateway.domain.policy import Bundle
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.tool import Execution, ToolResult
from tyrum_gateway.domain.transcript import AttemptAbandoned, ToolCallFinished
from tyrum_gateway.domain.turn import Turn, TurnLimits, worked
from tyrum_gateway.domain.turn_events import ApprovalAnswered
from tyrum_gateway.storage import SqliteStore

PATIENCE = 20.0
SECOND = timedelta(seconds=1)
HANGS, ANSWERS, BUSY, CANCELS = "hangs", "answers", "busy", "cancels"
LIMITS = EngineLimits(
    turn=TurnLimits(steps=4, attempts=2),
    step_time=30 * SECOND,
    turn_time=60 * SECOND,
    approval_expiry=timedelta(hours=1),
    queued_per_conversation=16,
    unfinished_per_principal=256,
    concurrent_turns=2,
)


@dataclass(slots=True)
class Place:
    """A state directory on which one gateway after another works, and a clock that only the test moves."""

    store: SqliteStore
    moment: datetime = field(default_factory=lambda: datetime.now(UTC))
    behaviour: str = HANGS
    jump: timedelta = timedelta()
    """By how much the clock is set while the model is asked."""
    limits: EngineLimits = LIMITS
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def now(self) -> datetime:
        """As a clock."""
        return self.moment

    async def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """As a model."""
        del prompt
        self.begun.set()
        self.moment += self.jump
        if self.behaviour == HANGS:
            await asyncio.Event().wait()
        if self.behaviour == BUSY:
            raise ModelUnavailable("busy", retryable=True, retry_after=60 * SECOND)
        if self.behaviour == CANCELS:
            raise asyncio.CancelledError
        yield TextDelta("Said.")
        yield StepEnd(())

    @asynccontextmanager
    async def gateway(self, behaviour: str) -> AsyncIterator[Engine]:
        """Work until the test has seen enough; then everything in work is given up, as at a crash."""
        self.behaviour = behaviour
        self.begun.clear()
        agent = Agent("", self, Bundle("default", ()), {"process.run": Stuck(self.begun)})
        engine = Engine(
            agent=agent, store=self.store, clock=self, ids=RandomIds(), streams=Streams(), limits=self.limits
        )
        started, stopping = asyncio.Event(), asyncio.Event()
        working = asyncio.create_task(engine.run(started, stopping))
        try:
            async with asyncio.timeout(PATIENCE):
                yield engine
        finally:
            stopping.set()
            await working

    async def crashes(self, behaviour: str, after: timedelta) -> None:
        """One gateway: it comes as far as its model or tool, and dies after so much time."""
        async with self.gateway(behaviour):
            await self.begun.wait()
        self.moment += after

    async def turn(self, turn: Turn) -> Turn:
        """As stored."""
        return (await self.store.turn(turn.turn_id)).turn

    async def ends(self, turn_id: TurnId) -> Turn:
        """Wait until the turn has ended."""
        while not (found := (await self.store.turn(turn_id)).turn).state.final:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return found


class Stuck(Withdrawn):
    """A tool whose begun calls nobody can tell the end of, yet."""

    def __init__(self, asked: asyncio.Event) -> None:
        self._asked = asked

    async def settle(self, execution: Execution) -> ToolResult:
        """Never return."""
        del execution
        self._asked.set()
        await asyncio.Event().wait()
        raise AssertionError


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """An empty state directory."""
    async with await SqliteStore.open(tmp_path / "tyrum.sqlite3") as store:
        yield Place(store)


async def test_a_restart_gives_a_turn_no_new_time(place: Place) -> None:
    """A turn that two gateways in a row work on for 30 s each has had its 60 s."""
    turn = (await place.store.accept(message())).turn
    await place.crashes(HANGS, 30 * SECOND)
    await place.crashes(HANGS, 30 * SECOND)
    assert worked(await place.turn(turn)) == 30 * SECOND, "the second is charged when it is known to be gone"
    async with place.gateway(ANSWERS):
        ended = await place.ends(turn.turn_id)
    assert (ended.state, ended.reason) == (TurnState.FAILED, "the turn was worked on for more than 60 s")


@pytest.mark.parametrize("step_time", [30 * SECOND, 60 * SECOND, 300 * SECOND])
async def test_an_outage_is_not_work(place: Place, step_time: timedelta) -> None:
    """A turn that was in work when the machine went down for a day goes on, however long a step may take."""
    place.limits = replace(LIMITS, step_time=step_time)
    turn = (await place.store.accept(message())).turn
    await place.crashes(HANGS, timedelta(days=1))
    async with place.gateway(ANSWERS):
        assert (await place.ends(turn.turn_id)).state is TurnState.COMPLETED


@pytest.mark.parametrize("jump", [timedelta(hours=1), timedelta(hours=-1)], ids=["forwards", "backwards"])
async def test_a_clock_that_is_set_while_a_turn_is_worked_on_counts_for_nothing(
    place: Place, jump: timedelta
) -> None:
    """Its time goes on from what it was: it does not end at the next restart, and has none given back."""
    turn = (await place.store.accept(message())).turn
    await place.crashes(HANGS, 30 * SECOND)
    place.jump = jump
    async with place.gateway(BUSY):
        while (await place.turn(turn)).attempt < 3:  # noqa: ASYNC110 - one was lost, one has failed
            await asyncio.sleep(0.01)
    place.jump = timedelta()
    assert timedelta() <= worked(await place.turn(turn)) - 30 * SECOND < PATIENCE * SECOND
    async with place.gateway(ANSWERS):
        assert (await place.ends(turn.turn_id)).state is TurnState.COMPLETED


async def test_the_wait_between_an_answer_and_its_work_is_no_work(place: Place) -> None:
    """A turn that is answered while all slots are taken or before the clock is set loses no time by that."""
    turn, approval = await asked(place.store)
    place.moment = now()
    answered = resolved(approval, Outcome.DENIED)
    async with place.gateway(BUSY) as engine:
        turn, _ = await engine.turns.apply(turn, ApprovalAnswered(answered), resolved=(answered,))
        place.moment += timedelta(hours=1)
        engine.wake(turn)
        while (await place.turn(turn)).attempt < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert worked(await place.turn(turn)) < PATIENCE * SECOND


async def test_a_crash_loop_while_a_call_is_settled_ends(place: Place) -> None:
    """A call that no gateway lives to hear of ends with its turn, though nothing else is committed of it."""
    turn = await running(place.store)
    place.moment = turn.changed_at or place.moment
    await place.store.commit(begin(turn, call(turn, CallState.PERMITTED)))
    crashes = 0
    while not (await place.turn(turn)).state.final:
        async with place.gateway(HANGS):
            seen = asyncio.ensure_future(place.begun.wait())
            end = asyncio.ensure_future(place.ends(turn.turn_id))
            await asyncio.wait({seen, end}, return_when=asyncio.FIRST_COMPLETED)
            crashes += seen.done()
            seen.cancel()
            end.cancel()
        place.moment += 7 * SECOND
    assert crashes == 9, "9 times 7 s are more than 60 s"
    events = await place.store.events(turn.conversation_id, 0, 100)
    results = [event.payload for event in events if isinstance(event.payload, ToolCallFinished)]
    assert [result.state for result in results] == [CallState.OUTCOME_UNKNOWN]


async def test_a_restart_while_the_last_attempt_is_waited_for_fails_nothing(place: Place) -> None:
    """The model has failed once of two times when the gateway ends: the next one still asks it."""
    turn = (await place.store.accept(message())).turn
    async with place.gateway(BUSY):
        while (await place.turn(turn)).attempt < LIMITS.turn.attempts:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with place.gateway(ANSWERS):
        assert (await place.ends(turn.turn_id)).state is TurnState.COMPLETED


async def test_a_turn_that_takes_the_gateway_down_ends(place: Place) -> None:
    """A step may lose as many attempts as may fail; the next loss ends the turn and spares the gateway."""
    turn = (await place.store.accept(message())).turn
    for _ in range(LIMITS.turn.attempts + 1):
        await place.crashes(HANGS, SECOND)
    async with place.gateway(HANGS):
        ended = await place.ends(turn.turn_id)
    assert (ended.state, ended.reason) == (TurnState.FAILED, "the gateway was restarted")
    events = await place.store.events(turn.conversation_id, 0, 100)
    given_up = [event.payload.attempt for event in events if isinstance(event.payload, AttemptAbandoned)]
    assert given_up == [1, 2, 3]


async def test_an_attempt_that_cancels_itself_has_failed(place: Place) -> None:
    """A transport that breaks off by a cancellation of its own is not asked again and again for nothing."""
    place.limits = replace(LIMITS, turn=replace(LIMITS.turn, attempts=1))
    turn = (await place.store.accept(message())).turn
    async with place.gateway(CANCELS):
        ended = await place.ends(turn.turn_id)
    assert (ended.state, ended.reason) == (TurnState.FAILED, "the model's answer broke off")
