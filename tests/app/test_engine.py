"""The engine outlives whatever one conversation does to it."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.storage.builders import message, new
from tyrum_gateway.app import engine as engine_module
from tyrum_gateway.app.agent import Agent, EngineLimits
from tyrum_gateway.app.alarms import Alarm, Alarms
from tyrum_gateway.app.engine import Engine
from tyrum_gateway.app.streams import Streams
from tyrum_gateway.app.watch import watch
from tyrum_gateway.bootstrap.system import RandomIds, SystemClock
from tyrum_gateway.domain.commit import Acceptance, Accepted, Commit, Committed
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.domain.ids import ConversationId, PrincipalId, TurnId
from tyrum_gateway.domain.model import Model, ModelEvent, Prompt, StepEnd, TextDelta, UserText
from tyrum_gateway.domain.policy import Bundle
from tyrum_gateway.domain.states import TurnState
from tyrum_gateway.domain.transcript import Event, TurnFinished
from tyrum_gateway.domain.turn import Turn, TurnLimits
from tyrum_gateway.domain.turn_events import CancelRequested
from tyrum_gateway.storage import SqliteStore

Result = TypeVar("Result")

PATIENCE = 20.0
LIMITS = EngineLimits(
    turn=TurnLimits(steps=4, attempts=3),
    step_time=timedelta(seconds=PATIENCE),
    turn_time=timedelta(seconds=PATIENCE),
    approval_expiry=timedelta(hours=1),
    queued_per_conversation=16,
    unfinished_per_principal=256,
    concurrent_turns=2,
)


class Echo:
    """A model that answers at once."""

    async def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Say the same to everything."""
        del prompt
        yield TextDelta("Said.")
        yield StepEnd(())


class Busy:
    """A model that thinks for as long as it may."""

    async def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Say nothing."""
        del prompt
        await asyncio.Event().wait()
        yield StepEnd(())


class Gated:
    """A model that never answers `hold`, and other messages when the gate is open; it notes what is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gate = asyncio.Event()

    async def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Answer what is not held."""
        last = prompt.messages[-1]
        assert isinstance(last, UserText)
        self.asked.append(last.text)
        await (asyncio.Event() if last.text == "hold" else self.gate).wait()
        yield TextDelta("Said.")
        yield StepEnd(())


class Spoiled(SqliteStore):
    """A store in which one conversation cannot be read, so many times."""

    spoiled: ConversationId | None = None
    times = 0

    async def next_turn(self, conversation_id: ConversationId) -> Turn | None:
        """Fail for the one, and work for all others."""
        if conversation_id == self.spoiled and self.times:
            self.times -= 1
            raise RuntimeError("nobody foresaw this")
        return await super().next_turn(conversation_id)


class Hanging(SqliteStore):
    """A store that was so slow, once, that its caller gave up and the write was made all the same."""

    slow = True

    async def accept(self, acceptance: Acceptance) -> Accepted:
        """Give up on a message."""
        return await self._late(super().accept(acceptance), acceptance.text == "late")

    async def commit(self, commit: Commit) -> Committed:
        """Give up on the end of a turn."""
        return await self._late(super().commit(commit), commit.turn.state.final)

    async def _late(self, write: Coroutine[Any, Any, Result], concerned: bool) -> Result:
        if not (self.slow and concerned):
            return await write
        self.slow = False
        handed_over = asyncio.ensure_future(write)
        await asyncio.sleep(0)
        handed_over.cancel()
        raise StateUnusable("the database took no write in time")


@asynccontextmanager
async def working(
    store: SqliteStore,
    streams: Streams | None = None,
    *,
    model: Model | None = None,
    limits: EngineLimits = LIMITS,
    alarms: Alarms | None = None,
) -> AsyncIterator[Engine]:
    """Run an engine."""
    agent = Agent("", model or Echo(), Bundle("default", ()), {})
    engine = Engine(
        agent=agent,
        store=store,
        clock=SystemClock(),
        ids=RandomIds(),
        streams=streams or Streams(),
        limits=limits,
        alarms=alarms,
    )
    started, stopping = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(engine.run(started, stopping))
    try:
        await started.wait()
        yield engine
    finally:
        stopping.set()
        await running


async def ended(store: SqliteStore, turn: TurnId) -> TurnState:
    """Wait until a turn has ended."""
    async with asyncio.timeout(PATIENCE):
        while not (state := (await store.turn(turn)).turn.state).final:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return state


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE turns SET state = 'nonsense' WHERE turn_id = ?",
        "UPDATE turns SET created_at = 1 << 62 WHERE turn_id = ?",
        "UPDATE events SET payload = '{' WHERE turn_id = ?",
    ],
    ids=["state", "time", "event"],
)
async def test_an_accepted_turn_whose_rows_are_damaged_ends_instead_of_being_retried(
    tmp_path: Path, damage: str
) -> None:
    """It fails with the reason, the alarm is raised, and the conversation takes its next message."""
    database, alarms = tmp_path / "tyrum.sqlite3", Alarms()
    async with await SqliteStore.open(database) as store:
        turn = (await store.accept(message())).turn
        with closing(sqlite3.connect(database)) as other, other:
            other.execute("DROP TRIGGER events_no_update")
            assert other.execute(damage, (turn.turn_id,)).rowcount == 1
        async with working(store, alarms=alarms), asyncio.timeout(PATIENCE):
            while await store.unfinished():  # noqa: ASYNC110 - in the database
                await asyncio.sleep(0.01)
        with closing(sqlite3.connect(database)) as other:
            state, reason = other.execute("SELECT state, reason FROM turns").fetchone()
            last = other.execute("SELECT kind FROM events ORDER BY sequence DESC").fetchone()
            audited = other.execute("SELECT kind FROM audit ORDER BY sequence DESC").fetchone()
    assert (state, last, audited) == ("failed", ("turn_finished",), ("turn.ended",))
    assert "damaged" in reason
    assert alarms.active(Alarm.DATABASE_DAMAGED)


async def test_damage_that_takes_no_end_either_leaves_the_engine_to_all_others(tmp_path: Path) -> None:
    """Where even the end of a damaged turn cannot be stored, its conversation is left alone."""
    database = tmp_path / "tyrum.sqlite3"
    async with await SqliteStore.open(database) as store:
        bad, good = [(await store.accept(message())).turn for _ in range(2)]
        with closing(sqlite3.connect(database)) as other, other:
            other.execute("UPDATE turns SET state = 'nonsense' WHERE turn_id = ?", (bad.turn_id,))
            other.execute("DELETE FROM conversations WHERE conversation_id = ?", (bad.conversation_id,))
        async with working(store), asyncio.timeout(PATIENCE):
            assert await ended(store, good.turn_id) is TurnState.COMPLETED


async def test_a_conversation_that_cannot_be_read_holds_up_no_other_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody foresaw ends neither the engine nor another conversation's turn."""
    monkeypatch.setattr(engine_module, "PAUSE", 0.05)
    async with await Spoiled.open(tmp_path / "tyrum.sqlite3") as store:
        bad, good = [(await store.accept(message())).turn for _ in range(2)]
        store.spoiled, store.times = bad.conversation_id, 2
        async with working(store) as engine:
            assert await ended(store, good.turn_id) is TurnState.COMPLETED
            assert await ended(store, bad.turn_id) is TurnState.COMPLETED
            assert store.times == 0
            async with asyncio.timeout(PATIENCE):
                await engine.idle()


async def test_who_wakes_many_leaves_room_for_others(tmp_path: Path) -> None:
    """Room is there while fewer than half of the slots are taken, and comes back when work ends."""
    async with await SqliteStore.open(tmp_path / "tyrum.sqlite3") as store, working(store) as engine:
        assert await engine.room() == 1
        turn = (await store.accept(message())).turn
        engine.wake(turn)
        waiting = asyncio.create_task(engine.room())
        await asyncio.sleep(0)
        assert not waiting.done(), "one of two slots is taken"
        assert await ended(store, turn.turn_id) is TurnState.COMPLETED
        async with asyncio.timeout(PATIENCE):
            await waiting


async def test_who_wakes_many_has_its_turn_in_a_gateway_that_stays_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions whose time is over are denied also while as many turns are worked on as may be."""
    monkeypatch.setattr(engine_module, "ROOM_SECONDS", 0.05)
    async with (
        await SqliteStore.open(tmp_path / "tyrum.sqlite3") as store,
        working(store, model=Busy()) as engine,
        asyncio.timeout(PATIENCE),
    ):
        for _ in range(3):
            engine.wake((await store.accept(message())).turn)
        assert engine.working == 3
        assert await engine.room() == 1


async def test_an_honest_turn_begins_before_the_queue_of_a_flood_is_worked_off(tmp_path: Path) -> None:
    """Of two slots a flood has both and ten messages waiting: the next free one is another principal's."""
    model = Gated()
    async with (
        await SqliteStore.open(tmp_path / "tyrum.sqlite3") as store,
        working(store, model=model) as engine,
        asyncio.timeout(PATIENCE),
    ):
        turns = [(await store.accept(message(text="flood"))).turn for _ in range(12)]
        for turn in turns:
            engine.wake(turn, due=True)
        honest = (await store.accept(message(text="honest", principal_id=new(PrincipalId)))).turn
        engine.wake(honest, due=True)
        while len(model.asked) < 2:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)
        model.gate.set()
        await engine.idle()
        assert model.asked.index("honest") <= 3, model.asked
        assert len(model.asked) == 13


async def test_turns_that_hold_their_slots_leave_one_to_other_principals(tmp_path: Path) -> None:
    """While a principal's turns hold all slots that it may have, and do not end, another's is answered."""
    model = Gated()
    model.gate.set()
    limits = replace(LIMITS, concurrent_turns=8)
    async with (
        await SqliteStore.open(tmp_path / "tyrum.sqlite3") as store,
        working(store, model=model, limits=limits) as engine,
    ):
        for _ in range(12):
            engine.wake((await store.accept(message(text="hold"))).turn, due=True)
        async with asyncio.timeout(PATIENCE):
            while model.asked.count("hold") < 7:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)
        for _ in range(2):
            honest = (await store.accept(message(text="honest", principal_id=new(PrincipalId)))).turn
            engine.wake(honest, due=True)
            assert await ended(store, honest.turn_id) is TurnState.COMPLETED
        assert model.asked.count("hold") == 7, "of eight slots"


async def test_draining_begins_nothing(tmp_path: Path) -> None:
    """After a drain has begun a message stays queued, and the engine is idle."""
    async with await SqliteStore.open(tmp_path / "tyrum.sqlite3") as store:
        async with working(store) as engine:
            engine.drain()
            turn = (await store.accept(message())).turn
            engine.wake(turn)
            async with asyncio.timeout(PATIENCE):
                await engine.idle()
            assert (await store.turn(turn.turn_id)).turn.state is TurnState.QUEUED
        async with working(store):
            assert await ended(store, turn.turn_id) is TurnState.COMPLETED


async def test_a_stream_ends_although_the_commit_that_ends_its_turn_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who watches gets the last events of a turn also when its worker did not wait for their commit."""
    monkeypatch.setattr(engine_module, "PAUSE", 0.05)
    streams, payloads = Streams(), list[object]()
    async with await Hanging.open(tmp_path / "tyrum.sqlite3") as store, working(store, streams) as engine:
        accepted = await store.accept(message())
        turn = accepted.turn
        async with asyncio.timeout(PATIENCE):
            with streams.subscribe(turn.conversation_id) as joined:
                engine.wake(turn, due=True)
                following = watch(
                    store,
                    streams,
                    turn.conversation_id,
                    accepted.sequence,
                    until=turn.turn_id,
                    joined=joined,
                )
                async for items in following:
                    payloads += [item.payload for item in items if isinstance(item, Event)]
        assert not store.slow
        assert isinstance(payloads[-1], TurnFinished)


async def test_a_message_whose_acceptance_was_given_up_is_answered(tmp_path: Path) -> None:
    """A message that became durable after its sender had been told of a failure needs no other one to run."""
    async with await Hanging.open(tmp_path / "tyrum.sqlite3") as store, working(store):
        late = message(text="late")
        with pytest.raises(StateUnusable):
            await store.accept(late)
        async with asyncio.timeout(PATIENCE):
            while not await store.conversations(None, None, 1):  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)
        assert await ended(store, late.turn.turn_id) is TurnState.COMPLETED


async def test_turns_that_end_at_once_are_all_in_the_conversations_state(tmp_path: Path) -> None:
    """A queued turn that is cancelled while another ends takes nothing from the checkpoint."""
    async with await SqliteStore.open(tmp_path / "tyrum.sqlite3") as store, working(store) as engine:
        first = (await store.accept(message())).turn
        conversation = first.conversation_id
        turns = [first, *[(await store.accept(message(conversation_id=conversation))).turn for _ in range(5)]]
        await asyncio.gather(*(engine.turns.apply(turn, CancelRequested("enough")) for turn in turns))
        last = (await store.accept(message(conversation_id=conversation))).turn
        summary = (await store.window(last, 0)).checkpoint.summary
        assert [f"Turn {turn.number}\n" in summary for turn in turns] == [True] * 6
