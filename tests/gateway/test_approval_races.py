"""Answers at once, against expiry and against cancelling: exactly one outcome stands; on a real database."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.storage.builders import PRINCIPAL, asked, held_writer, new
from tyrum_gateway.app import approvals
from tyrum_gateway.app.agent import Agent, EngineLimits
from tyrum_gateway.app.approvals import ApprovalDesk
from tyrum_gateway.app.chat import ChatDesk
from tyrum_gateway.app.engine import Engine
from tyrum_gateway.app.overrides import Overrides
from tyrum_gateway.app.streams import Streams
from tyrum_gateway.bootstrap.system import RandomIds, SystemClock
from tyrum_gateway.domain.approval import Approval, Outcome, Subject
from tyrum_gateway.domain.commit import Origin
from tyrum_gateway.domain.errors import AlreadyResolved
from tyrum_gateway.domain.ids import PrincipalId, TurnId
from tyrum_gateway.domain.override import Wish
from tyrum_gateway.domain.policy import Bundle, Effect, Target
from tyrum_gateway.domain.ports import Clock, TurnView
from tyrum_gateway.domain.principal import Principal, Role
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.transcript import ApprovalResolved, Event, ToolCallFinished
from tyrum_gateway.domain.turn import Turn, TurnLimits
from tyrum_gateway.models.offline import OfflineModel
from tyrum_gateway.storage import SqliteStore

ROUNDS = 12
TARGET = Target("process.run", Effect.STATE_CHANGING, "/usr/bin/touch", argv=("touch", "a"))
SUBJECT = Subject('{"workspace":{"path":"/work"}}', "touch a")
ALICE, BOB = (
    Principal(new(PrincipalId), name, frozenset({Role.APPROVER, Role.OPERATOR}), "token") for name in "AB"
)


@dataclass(frozen=True, slots=True)
class Stopped:
    """A clock that shows one moment."""

    moment: datetime

    def now(self) -> datetime:
        """Return the moment."""
        return self.moment


@dataclass(frozen=True, slots=True)
class Place:
    """The use cases on one database."""

    store: SqliteStore
    database: Path
    engine: Engine
    chat: ChatDesk
    overrides: Overrides
    desk: ApprovalDesk

    def with_clock(self, clock: Clock) -> ApprovalDesk:
        """The same desk at another time."""
        return _desk(self.store, self.engine, self.overrides, clock)

    async def question(self) -> tuple[Turn, Approval]:
        """A turn that waits for an answer."""
        turn, approval = await asked(self.store)
        with closing(sqlite3.connect(self.database)) as connection, connection:
            connection.execute(
                "UPDATE approvals SET target = ?, subject_json = ? WHERE approval_id = ?",
                (TARGET.describe(), SUBJECT.json, approval.approval_id),
            )
        return turn, await self.store.approval(approval.approval_id)

    async def events(self, turn: Turn) -> list[Event]:
        """The transcript."""
        return list(await self.store.events(turn.conversation_id, 0, 100))

    def audited(self, kind: str) -> int:
        """How often the log says something."""
        with closing(sqlite3.connect(self.database)) as connection:
            (count,) = connection.execute("SELECT count(*) FROM audit WHERE kind = ?", (kind,)).fetchone()
        return int(count)


LIMITS = EngineLimits(
    turn=TurnLimits(steps=4, attempts=2),
    step_time=timedelta(seconds=30),
    turn_time=timedelta(seconds=30),
    approval_expiry=timedelta(hours=1),
    queued_per_conversation=4,
    unfinished_per_principal=256,
    concurrent_turns=16,
)


def _desk(store: SqliteStore, engine: Engine, overrides: Overrides, clock: Clock) -> ApprovalDesk:
    return ApprovalDesk(
        store=store,
        clock=clock,
        ids=RandomIds(),
        engine=engine,
        overrides=overrides,
        limits=LIMITS,
        requester_may_approve=True,
    )


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """An engine that is not running: what is answered stays where the answer put it."""
    database = tmp_path / "state" / "tyrum.db"
    async with await SqliteStore.open(database) as store:
        clock, ids, streams = SystemClock(), RandomIds(), Streams()
        agent = Agent("", OfflineModel(), Bundle("default", ()), {})
        overrides = Overrides(store=store.overrides, clock=clock)
        engine = Engine(
            agent=agent,
            store=store,
            clock=clock,
            ids=ids,
            streams=streams,
            limits=LIMITS,
            permissions=overrides,
        )
        chat = ChatDesk(
            store=store,
            clock=clock,
            ids=ids,
            engine=engine,
            streams=streams,
            limits=LIMITS,
            origin=Origin(),
        )
        yield Place(store, database, engine, chat, overrides, _desk(store, engine, overrides, clock))


async def say(
    desk: ApprovalDesk, approval: Approval, principal: Principal, *, approve: bool, always: bool = False
) -> Outcome | str:
    """Answer; tell the outcome, or what stands instead."""
    try:
        answered = await desk.resolve(
            principal,
            approval.approval_id,
            approve=approve,
            digest=approval.subject.digest,
            reason="",
            always=Wish() if always else None,
        )
    except AlreadyResolved as error:
        return f"already {error.context['state']}"
    assert answered.resolution is not None
    return answered.resolution.outcome


def outcomes(events: list[Event]) -> list[Outcome]:
    """What the transcript says about answers."""
    return [event.payload.outcome for event in events if isinstance(event.payload, ApprovalResolved)]


def ended(events: list[Event]) -> list[CallState]:
    """What the transcript says about calls."""
    return [event.payload.state for event in events if isinstance(event.payload, ToolCallFinished)]


async def test_of_two_approvers_at_once_one_answers(place: Place) -> None:
    """Whichever of two answers comes first stands alone, in row, transcript and audit; the other is told."""
    for number in range(ROUNDS):
        turn, approval = await place.question()
        answers = [(ALICE, number % 2 == 0), (BOB, number % 3 == 0)]
        got = await asyncio.gather(*(say(place.desk, approval, who, approve=yes) for who, yes in answers))
        (stands,) = [item for item in got if isinstance(item, Outcome)]
        assert f"already {stands}" in got
        stored = await place.store.approval(approval.approval_id)
        assert stored.resolution is not None
        winner = answers[got.index(stands)][0]
        assert (stored.resolution.outcome, stored.resolution.principal_id) == (stands, winner.principal_id)
        events = await place.events(turn)
        assert outcomes(events) == [stands]
        assert ended(events) == ([] if stands is Outcome.APPROVED else [CallState.DENIED])
    assert place.audited("approval.resolved") == ROUNDS


async def test_of_two_permissions_at_once_one_is_given(place: Place) -> None:
    """Two operators who permit for good at once create one override, the one that the answer names."""
    for _ in range(ROUNDS):
        _, approval = await place.question()
        got = await asyncio.gather(
            *(say(place.desk, approval, who, approve=True, always=True) for who in (ALICE, BOB))
        )
        assert sorted(got) == ["already approved", Outcome.APPROVED]
        stored = await place.store.approval(approval.approval_id)
        assert stored.resolution is not None
        assert stored.resolution.override_id is not None
        override = await place.store.overrides.get(stored.resolution.override_id)
        assert override.created_by == stored.resolution.principal_id
    assert place.audited("override.created") == ROUNDS
    assert len(await place.store.overrides.page(None, 100)) == ROUNDS


@pytest.mark.parametrize("answer_first", [True, False])
async def test_an_answer_and_the_expiry_at_once_leave_one_outcome(place: Place, answer_first: bool) -> None:
    """At the moment of expiry an approval is approved or expired, never both, and the call follows it."""
    for _ in range(ROUNDS):
        turn, approval = await place.question()
        last = Stopped(approval.expires_at - timedelta(microseconds=1))
        answering = say(place.with_clock(last), approval, ALICE, approve=True)
        expiring = place.with_clock(Stopped(approval.expires_at))._expire_due()
        if answer_first:
            got, _ = await asyncio.gather(answering, expiring)
        else:
            _, got = await asyncio.gather(expiring, answering)
        stored = await place.store.approval(approval.approval_id)
        assert stored.resolution is not None
        events = await place.events(turn)
        assert outcomes(events) == [stored.resolution.outcome]
        if stored.resolution.outcome is Outcome.APPROVED:
            assert (got, ended(events)) == (Outcome.APPROVED, [])
        else:
            assert stored.resolution.outcome is Outcome.EXPIRED
            assert (got, ended(events)) == (f"already {Outcome.EXPIRED}", [CallState.DENIED])


async def test_a_question_that_cannot_be_denied_ends_neither_the_gateway_nor_another_questions_wait(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody foresaw is logged and tried again, for as long as the gateway runs."""
    monkeypatch.setattr(approvals, "_PAUSE", 0.05)
    (broken, first), (turn, second) = [await place.question() for _ in range(2)]
    late = place.with_clock(Stopped(max(first.expires_at, second.expires_at)))
    read, refused = place.store.turn, asyncio.Event()

    async def spoiled(turn_id: TurnId) -> TurnView:
        if turn_id == broken.turn_id and not refused.is_set():
            refused.set()
            raise RuntimeError("nobody foresaw this")
        return await read(turn_id)

    monkeypatch.setattr(place.store, "turn", spoiled)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        expiring = group.create_task(late.expire())
        for asked_about in (turn, broken):
            while not ended(await place.events(asked_about)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        expiring.cancel()
    assert refused.is_set()


async def test_questions_that_expire_together_share_a_transaction(place: Place) -> None:
    """Each denial is a commit of its own, with its call; one that came too late sinks none of the others."""
    asked_about = [await place.question() for _ in range(8)]
    late = place.with_clock(Stopped(max(approval.expires_at for _, approval in asked_about)))
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        async with held_writer(place.store):
            before = place.store.statistics
            answering = group.create_task(say(place.desk, asked_about[0][1], ALICE, approve=True))
            while place.store._writer._queue.qsize() < 1:  # noqa: ASYNC110 - a thread's queue has no event
                await asyncio.sleep(0.005)
            expiring = group.create_task(late._expire_due())
            while place.store._writer._queue.qsize() < 9:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert await answering is Outcome.APPROVED
        assert await expiring >= 1, "what was answered meanwhile is not looked for again at once"
    after = place.store.statistics
    assert after.transactions - before.transactions == 2, "the one that held the writer up, and all of these"
    assert after.commits - before.commits == 8
    for turn, approval in asked_about[1:]:
        assert outcomes(await place.events(turn)) == [Outcome.EXPIRED]
        assert ended(await place.events(turn)) == [CallState.DENIED]
        assert (await place.store.approval(approval.approval_id)).resolution is not None
    assert outcomes(await place.events(asked_about[0][0])) == [Outcome.APPROVED]


async def test_an_answer_and_cancelling_at_once_leave_one_outcome(place: Place) -> None:
    """A cancelled turn has no open question and no running call, whether the answer came before or after."""
    seen = set()
    for number in range(2 * ROUNDS):
        turn, approval = await place.question()
        owner = replace(ALICE, principal_id=PRINCIPAL)
        answering = say(place.desk, approval, ALICE, approve=True)
        cancelling = place.chat.cancel(owner, turn.turn_id, "")
        if number % 2:
            got, _ = await asyncio.gather(answering, cancelling)
        else:
            _, got = await asyncio.gather(cancelling, answering)
        stored = await place.store.approval(approval.approval_id)
        assert stored.resolution is not None
        outcome = stored.resolution.outcome
        assert got == (outcome if outcome is Outcome.APPROVED else f"already {Outcome.CANCELLED}")
        seen.add(outcome)
        events = await place.events(turn)
        assert outcomes(events) == [outcome]
        assert ended(events) == [CallState.CANCELLED]
        assert (await place.store.turn(turn.turn_id)).turn.state is TurnState.CANCELLED
    assert seen <= {Outcome.APPROVED, Outcome.CANCELLED}


async def test_an_answer_whose_sender_goes_away_is_followed_up(place: Place) -> None:
    """A client that disconnects while its answer is committed loses the reply; the turn goes on by itself."""
    started, stopping = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(place.engine.run(started, stopping))
        await started.wait()
        turn, approval = await place.question()
        async with held_writer(place.store):
            answering = asyncio.create_task(say(place.desk, approval, ALICE, approve=False))
            while place.store._writer._queue.empty():  # noqa: ASYNC110 - a thread's queue has no event
                await asyncio.sleep(0.005)
            answering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await answering
        while not (await place.store.turn(turn.turn_id)).turn.state.final:  # noqa: ASYNC110 - in the database
            await asyncio.sleep(0.01)
        stopping.set()
    assert outcomes(await place.events(turn)) == [Outcome.DENIED]
    assert (await place.store.turn(turn.turn_id)).turn.state is TurnState.COMPLETED


async def test_a_message_whose_sender_goes_away_is_answered(place: Place) -> None:
    """A client that disconnects while its message is committed loses the stream; the turn runs by itself."""
    started, stopping = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(place.engine.run(started, stopping))
        await started.wait()
        sender = replace(ALICE, principal_id=new(PrincipalId))
        async with held_writer(place.store):
            sending = asyncio.ensure_future(anext(place.chat.converse(sender, None, "r", "hello")))
            while place.store._writer._queue.empty():  # noqa: ASYNC110 - a thread's queue has no event
                await asyncio.sleep(0.005)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
        while not (found := await place.store.conversations(sender.principal_id, None, 1)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        (message, *_) = await place.store.events(found[0].conversation_id, 0, 1)
        while not (await place.store.turn(message.turn_id)).turn.state.final:  # noqa: ASYNC110 - in the database
            await asyncio.sleep(0.01)
        stopping.set()


async def test_what_is_revoked_permits_nothing_whoever_looks_meanwhile(place: Place) -> None:
    """Before a revocation is acknowledged an override may still count; from then on nobody sees it."""
    _, approval = await place.question()
    await say(place.desk, approval, ALICE, approve=True, always=True)
    (held,) = await place.overrides.overrides("default")
    assert await place.overrides.overrides("other") == ()
    assert held.permits(TARGET)
    (override,) = await place.store.overrides.page(None, 10)
    async with held_writer(place.store):
        revoking = asyncio.create_task(place.overrides.revoke(BOB, override.override_id, "no more"))
        while place.store._writer._queue.empty():  # noqa: ASYNC110 - a thread's queue has no event
            await asyncio.sleep(0.005)
        assert await place.overrides.overrides("default") == (held,)
        # Its sender goes away: the revocation is on its way all the same.
        revoking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await revoking
    async with asyncio.timeout(30):
        while await place.overrides.overrides("default"):  # noqa: ASYNC110 - in the database
            await asyncio.sleep(0.005)
    again = await place.overrides.revoke(ALICE, override.override_id, "")
    assert again.revocation is not None
    assert (again.revocation.by, again.revocation.reason) == ("B", "no more")
    assert place.audited("override.revoked") == 1


async def test_an_unknown_end_of_a_change_is_not_forgotten(place: Place) -> None:
    """After a change of which nobody knows whether it was made, every look is one into the database."""
    _, approval = await place.question()
    with pytest.raises(RuntimeError), place.overrides.changing():
        raise RuntimeError("nobody knows")
    assert await place.overrides.overrides("default") == ()
    # Made behind its back: what is held in memory would not show it.
    unrelated = Overrides(store=place.store.overrides, clock=SystemClock())
    elsewhere = _desk(place.store, place.engine, unrelated, SystemClock())
    assert await say(elsewhere, approval, ALICE, approve=True, always=True) is Outcome.APPROVED
    assert len(await place.overrides.overrides("default")) == 1
