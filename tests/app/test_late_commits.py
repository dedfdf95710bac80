"""A database that takes a commit after its caller was told otherwise: what follows from it follows then."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks.noop import NAME, NoopTool
from tests.storage.builders import begin, call, message, running
from tyrum_gateway.app import engine as engine_module
from tyrum_gateway.app.agent import Agent, EngineLimits
from tyrum_gateway.app.engine import Engine
from tyrum_gateway.app.streams import Streams
from tyrum_gateway.app.withdrawn import Withdrawn
from tyrum_gateway.bootstrap.system import RandomIds, SystemClock
from tyrum_gateway.domain.commit import Commit, Committed
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.domain.ids import TurnId
from tyrum_gateway.domain.model import CallRequest, ModelEvent, Prompt, StepEnd, TextDelta, UserText
from tyrum_gateway.domain.policy import Bundle, Effect
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.tool import Execution, Prepared, Rejected, Tool, ToolResult
from tyrum_gateway.domain.transcript import ToolCallStarted
from tyrum_gateway.domain.turn import Turn, TurnLimits
from tyrum_gateway.domain.turn_events import CancelRequested
from tyrum_gateway.storage import SqliteStore
from tyrum_gateway.storage.reads import Reads
from tyrum_gateway.storage.writer import Writer

PATIENCE = 25.0
LIMITS = EngineLimits(
    turn=TurnLimits(steps=4, attempts=1),
    step_time=timedelta(hours=1),
    turn_time=timedelta(hours=1),
    approval_expiry=timedelta(hours=1),
    queued_per_conversation=16,
    unfinished_per_principal=256,
    concurrent_turns=2,
)
Kind = Callable[[Commit], bool]


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation is taken up again at once after the store has failed."""
    monkeypatch.setattr(engine_module, "PAUSE", 0.05)


class Late(SqliteStore):
    """A store whose disk hangs once: a commit is given up, and made all the same when the disk goes on."""

    hangs: Kind | None = None
    until_the_next = False
    """Whether the disk goes on as soon as another commit waits behind the one that was given up."""

    def __init__(self, writer: Writer, reads: Reads) -> None:
        super().__init__(writer, reads)
        self.given_up = asyncio.Event()
        self.goes_on = threading.Event()
        self._tasks: list[asyncio.Future[object]] = []

    async def commit(self, commit: Commit) -> Committed:
        """Hang, once."""
        if self.hangs is not None and self.hangs(commit):
            self.hangs = None
            self._tasks.append(asyncio.ensure_future(self._writer.run(lambda _: self.goes_on.wait(PATIENCE))))
            late = asyncio.ensure_future(super().commit(commit))
            await asyncio.sleep(0)  # both are handed over
            late.cancel()
            self.given_up.set()
            raise StateUnusable("the database took no write in time")
        waiting = asyncio.ensure_future(super().commit(commit))
        if self.given_up.is_set() and self.until_the_next:
            await asyncio.sleep(0)
            self.goes_on.set()
        return await waiting


class Command(Withdrawn):
    """A tool whose command runs until it is stopped."""

    def __init__(self) -> None:
        self.begun, self.let_go, self.stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def settle(self, execution: Execution) -> ToolResult:
        """Wait for the end."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.let_go.set()
        raise AssertionError

    async def stop(self, execution: Execution) -> None:
        """End it."""
        self.stopped.set()


class Noop(NoopTool):
    """A tool that counts, and whose effect policy sees as it is told."""

    def __init__(self, effect: Effect) -> None:
        self.effect = effect
        self.executed = self.settled = 0

    async def prepare(self, arguments: str) -> Prepared | Rejected:
        """With that effect."""
        prepared = await super().prepare(arguments)
        assert isinstance(prepared, Prepared)
        return replace(prepared, target=replace(prepared.target, effect=self.effect))

    async def execute(self, prepared: Prepared, execution: Execution) -> ToolResult:
        """Count."""
        self.executed += 1
        return await super().execute(prepared, execution)

    async def settle(self, execution: Execution) -> ToolResult:
        """Count."""
        self.settled += 1
        return await super().settle(execution)


class Calling:
    """A model that calls the tool first."""

    async def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Call, or answer."""
        if all(isinstance(told, UserText) for told in prompt.messages):
            yield StepEnd((CallRequest(NAME, "{}"),))
        else:
            yield TextDelta("Done.")
            yield StepEnd(())


@asynccontextmanager
async def working(
    store: Late, name: str, tool: Tool, turn_time: timedelta = LIMITS.turn_time
) -> AsyncIterator[Engine]:
    """Run an engine whose agent has one tool."""
    engine = Engine(
        agent=Agent("", Calling(), Bundle("default", ()), {name: tool}),
        store=store,
        clock=SystemClock(),
        ids=RandomIds(),
        streams=Streams(),
        limits=replace(LIMITS, turn_time=turn_time),
    )
    started, stopping = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(engine.run(started, stopping))
    try:
        async with asyncio.timeout(PATIENCE):
            await started.wait()
            yield engine
    finally:
        store.goes_on.set()
        stopping.set()
        await task


async def reaches(store: SqliteStore, turn_id: TurnId, state: TurnState) -> Turn:
    """Wait until a turn is in a state."""
    while (turn := (await store.turn(turn_id)).turn).state is not state:
        assert not turn.state.final, turn.reason
        await asyncio.sleep(0.01)
    return turn


@pytest.mark.parametrize("by", ["a client", "its deadline"])
async def test_a_command_is_stopped_when_the_end_of_its_turn_becomes_known_late(
    tmp_path: Path, by: str
) -> None:
    """A turn whose end was committed after its caller had given up keeps neither its work nor its command."""
    cancelled = by == "a client"
    async with await Late.open(tmp_path / "tyrum.sqlite3") as store:
        turn = await running(store)
        turn, *_ = await store.commit(begin(turn, call(turn, CallState.PERMITTED)))
        store.hangs = lambda commit: commit.turn.state.final
        tool = Command()
        turn_time = LIMITS.turn_time if cancelled else timedelta(seconds=0.5)
        async with working(store, "process.run", tool, turn_time) as engine:
            if cancelled:
                await tool.begun.wait()
                newest = (await store.turn(turn.turn_id)).turn
                with pytest.raises(StateUnusable):
                    await engine.turns.apply(newest, CancelRequested("enough"))
                assert not tool.let_go.is_set()
            await store.given_up.wait()
            assert not tool.stopped.is_set()
            store.goes_on.set()
            await tool.stopped.wait()
            await engine.idle()
        assert tool.let_go.is_set() == tool.begun.is_set()
        ended = (await store.turn(turn.turn_id)).turn
        assert ended.state is (TurnState.CANCELLED if cancelled else TurnState.FAILED)


@pytest.mark.parametrize(
    ("kind", "effect", "rests", "settled"),
    [
        (lambda commit: commit.turn.step == 1 and not commit.events, Effect.READ_ONLY, "completed", 0),
        (
            lambda commit: any(isinstance(payload, ToolCallStarted) for payload in commit.events),
            Effect.READ_ONLY,
            "completed",
            1,
        ),
        (lambda commit: bool(commit.opened), Effect.STATE_CHANGING, "waiting_approval", 0),
    ],
    ids=["claim", "begins a call", "asks"],
)
async def test_a_turn_goes_on_from_a_commit_that_was_made_after_it_had_been_given_up(
    tmp_path: Path, kind: Kind, effect: Effect, rests: str, settled: int
) -> None:
    """Who takes a turn up again behind its own late commit finds it moved on, and goes on from there."""
    async with await Late.open(tmp_path / "tyrum.sqlite3") as store:
        store.hangs, store.until_the_next = kind, True
        tool = Noop(effect)
        async with working(store, NAME, tool) as engine:
            turn = (await store.accept(message())).turn
            engine.wake(turn, due=True)
            await reaches(store, turn.turn_id, TurnState(rests))
            await engine.idle()
        assert store.given_up.is_set()
        assert (tool.executed, tool.settled) == (int(rests == "completed" and not settled), settled)
