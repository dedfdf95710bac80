"""Commits: whole or not at all, compared, in order, appended only."""

import asyncio
import functools
import random
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.storage.builders import (
    asked,
    begin,
    call,
    claim,
    end,
    finish,
    held_writer,
    message,
    new,
    now,
    resolved,
    running,
    say,
)
from tyrum_gateway.domain import transcript
from tyrum_gateway.domain.approval import Outcome
from tyrum_gateway.domain.checkpoint import Checkpoint
from tyrum_gateway.domain.commit import Accepted, AuditEntry, Commit, Committed
from tyrum_gateway.domain.errors import Draining, KernelBug, StateUnusable, VersionConflict
from tyrum_gateway.domain.ids import PrincipalId, TurnId
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.token_day import TokenDay
from tyrum_gateway.domain.turn import Turn
from tyrum_gateway.domain.usage import NOTHING, Usage
from tyrum_gateway.storage import SqliteStore
from tyrum_gateway.storage.transaction import Transaction


async def test_a_turn_reads_back_as_it_was_committed(store: SqliteStore) -> None:
    """A one-tool turn takes five commits, and each reads back equal to what the commit returned."""
    accepted = await store.accept(message())
    turn, *_ = await store.commit(claim(accepted.turn))
    turn, begun, *_ = await store.commit(begin(turn, call(turn, CallState.PERMITTED)))
    assert (await store.turn(turn.turn_id)).turn == turn
    turn, ended, *_ = await store.commit(end(turn, "a listing"))
    assert await store.next_turn(turn.conversation_id) == turn
    last = replace(finish(turn), checkpoint=Checkpoint(1, "Turn 1"))
    turn, finished, *_ = await store.commit(last)
    view = await store.turn(turn.turn_id)
    assert view.turn == turn
    assert view.ended_at == last.at
    assert await store.next_turn(turn.conversation_id) is None
    events = await store.events(turn.conversation_id, 1, 10)
    assert tuple(events) == (*begun, *ended, *finished)
    assert store.statistics.commits == 5


async def test_a_conflict_sinks_no_neighbour(store: SqliteStore) -> None:
    """Of commits that share a transaction, those that are refused fail alone, and leave no trace."""
    turns = [await running(store) for _ in range(3)]
    stale = replace(turns[1], version=turns[1].version - 1)
    broken = begin(turns[2], call(replace(turns[2], turn_id=new(TurnId)), CallState.PERMITTED))
    changes = {
        "first": say(turns[0], "a"),
        "conflict": say(stale, "b"),
        "second": say(turns[1], "c"),
        "bug": broken,
    }
    before = store.statistics
    async with held_writer(store):
        tasks = [
            asyncio.create_task(store.commit(replace(change, audit=(AuditEntry("told", "me", name, {}),))))
            for name, change in changes.items()
        ]
        await asyncio.sleep(0)
    first, conflict, second, bug = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)
    assert isinstance(conflict, VersionConflict)
    assert isinstance(bug, KernelBug)
    assert store.statistics.transactions - before.transactions == 2, "the hold and one group"
    assert store.statistics.commits - before.commits == 2
    for turn, texts in zip(turns, (["a"], ["c"], []), strict=True):
        events = await store.events(turn.conversation_id, 1, 10)
        assert [event.sequence for event in events] == list(range(2, 2 + len(texts)))
    assert not await store.bindings("", 10)
    audit = await store.audit.rows(0, 100)
    assert [row.subject for row in audit if row.kind == "told"] == ["first", "second"]
    assert [row.sequence for row in audit] == list(range(1, len(audit) + 1))
    assert [row.previous for row in audit[1:]] == [row.hash for row in audit[:-1]]


@pytest.mark.parametrize("conversations", [1, 16])
async def test_sequences_have_no_holes(store: SqliteStore, conversations: int) -> None:
    """Whatever runs at once, a conversation's sequences count from 1 without a hole."""
    opened = [await store.accept(message(max_queued=100)) for _ in range(conversations)]

    async def one(conversation: int) -> None:
        sizes = random.Random(conversation)
        accepted = await store.accept(
            message(conversation_id=opened[conversation % conversations].conversation_id, max_queued=100)
        )
        turn, *_ = await store.commit(claim(accepted.turn))
        for _ in range(5):
            turn, events, *_ = await store.commit(say(turn, *["x"] * sizes.randint(0, 4)))
            numbers = [event.sequence for event in events]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True

    await asyncio.gather(*(one(index) for index in range(16)))
    for accepted in opened:
        conversation = await store.conversation(accepted.conversation_id)
        events = await store.events(accepted.conversation_id, 0, 1_000)
        assert [event.sequence for event in events] == list(range(1, conversation.last_sequence + 1))


async def test_one_of_many_equal_starts_wins(store: SqliteStore) -> None:
    """Of sixteen answers to one question exactly one is recorded; the others changed nothing."""
    turn, approval = await asked(store)
    changes = [
        Commit(
            replace(turn, state=TurnState.RUNNING),
            now(),
            resolved=(resolved(approval, Outcome.APPROVED if index % 2 else Outcome.DENIED, str(index)),),
        )
        for index in range(16)
    ]
    answers = await asyncio.gather(*map(store.commit, changes), return_exceptions=True)
    won = [index for index, answer in enumerate(answers) if isinstance(answer, tuple)]
    assert len(won) == 1
    assert sum(isinstance(answer, VersionConflict) for answer in answers) == 15
    assert await store.approval(approval.approval_id) == changes[won[0]].resolved[0]


async def test_an_approval_is_resolved_once(store: SqliteStore) -> None:
    """A resolved approval is not resolved again, even by a transition from the present version."""
    turn, approval = await asked(store)
    answered = resolved(approval)
    turn, *_ = await store.commit(Commit(turn, now(), resolved=(answered,)))
    change = replace(say(turn, "never"), resolved=(resolved(approval, Outcome.DENIED),))
    with pytest.raises(VersionConflict, match="pending"):
        await store.commit(change)
    assert await store.approval(approval.approval_id) == answered
    assert (await store.turn(turn.turn_id)).turn == turn
    assert (await store.conversation(turn.conversation_id)).last_sequence == 1


async def test_an_operation_names_one_call(store: SqliteStore) -> None:
    """The schema itself refuses a second call under an operation id."""
    turn = await running(store)
    first = begin(turn, call(turn, CallState.PERMITTED))
    turn, *_ = await store.commit(first)
    twin = replace(first.calls[0], call_id=call(turn, CallState.PERMITTED).call_id, index=1)
    with pytest.raises(KernelBug):
        await store.commit(Commit(turn, now(), calls=(twin,)))


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE events SET payload = '{}'",
        "DELETE FROM events",
        "UPDATE audit SET actor = 'nobody'",
        "DELETE FROM audit",
    ],
)
async def test_history_is_append_only(store: SqliteStore, database: Path, sql: str) -> None:
    """Not even a direct connection changes or deletes events and audit entries."""
    await store.accept(message())
    other = sqlite3.connect(database)
    try:
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            other.execute(sql)
    finally:
        other.close()


async def test_evidence_is_kept_beside_the_event(store: SqliteStore, database: Path) -> None:
    """Process facts and bounded output are stored once, and the content returns with the event."""
    turn = await running(store)
    turn, *_ = await store.commit(begin(turn, call(turn, CallState.PERMITTED)))
    _, (event,), *_ = await store.commit(end(turn, "a listing"))
    assert list(await store.events(turn.conversation_id, 2, 10)) == [event]
    assert isinstance(event.payload, transcript.ToolCallFinished)
    other = sqlite3.connect(database)
    row = other.execute(
        "SELECT content, cause, exit_code, signal, duration, stdout_bytes, stdout_head FROM evidence"
    ).fetchall()
    other.close()
    assert row == [("a listing", "exited", 0, None, 12_000, 3, b"out")]


async def test_audit_is_written_in_the_commit(store: SqliteStore, database: Path) -> None:
    """Audit entries appear with the transition that makes them true, and never with a refused one."""
    turn = await running(store)
    entry = AuditEntry("call.denied", "kernel", turn.turn_id, {"b": [1, None], "a": "é"})
    await store.commit(replace(say(turn, "x"), audit=(entry,)))
    with pytest.raises(VersionConflict):
        await store.commit(replace(say(turn, "x"), audit=(entry,)))
    other = sqlite3.connect(database)
    rows = other.execute(
        "SELECT sequence, kind, actor, subject, details FROM audit ORDER BY sequence"
    ).fetchall()
    other.close()
    assert [row[1] for row in rows] == ["turn.accepted", "call.denied"]
    assert rows[1][2:] == ("kernel", turn.turn_id, '{"a":"é","b":[1,null]}')


async def test_a_cancelled_caller_loses_the_answer_only(store: SqliteStore) -> None:
    """Cancelling whoever waits for a commit leaves it applied whole, and its neighbours answered."""
    turn, other = await running(store), await running(store)
    async with held_writer(store):
        task = asyncio.create_task(store.commit(say(turn, "kept")))
        neighbour = asyncio.create_task(store.commit(say(other, "answered")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await neighbour
    assert (await store.turn(turn.turn_id)).turn.version == turn.version + 1
    assert len(await store.events(turn.conversation_id, 1, 10)) == 1


@pytest.mark.parametrize("answered", [False, True], ids=["before the answer", "with the answer"])
async def test_a_commit_whose_caller_was_cancelled_is_told_of(store: SqliteStore, answered: bool) -> None:
    """Whoever follows the store learns of a write that was made and that its caller never heard of."""
    turn, other, told = await running(store), await running(store), list[Accepted | Committed]()
    store.follow(told.append)
    stops = (call(turn, CallState.EXECUTING),)

    async def first() -> None:
        await store.commit(say(other, "heard"))
        task.cancel()  # answered together, and not woken yet

    async with held_writer(store):
        neighbour = asyncio.create_task(first())
        task = asyncio.create_task(store.commit(replace(say(turn, "unheard"), stops=stops)))
        await asyncio.sleep(0)
        if not answered:
            task.cancel()
    await neighbour
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)  # told beside the answers
    (made,) = told
    assert isinstance(made, Committed)
    assert (made.turn.turn_id, made.turn.version, made.stops) == (turn.turn_id, turn.version + 1, stops)


async def test_a_full_disk_fails_writes_and_loses_nothing(store: SqliteStore) -> None:
    """When the file cannot grow a write fails by name and changes nothing; with room, writing goes on."""
    turn = await running(store)

    def allow(transaction: Transaction, *, pages: int) -> None:
        (present,) = transaction.connection.execute("PRAGMA page_count").fetchone()
        transaction.connection.execute(f"PRAGMA max_page_count={present + pages}")

    await store._writer.run(functools.partial(allow, pages=0))
    with pytest.raises(StateUnusable, match="full"):
        await store.commit(say(turn, "x" * 1_000_000))
    assert (await store.turn(turn.turn_id)).turn == turn
    await store._writer.run(functools.partial(allow, pages=10_000))
    _, (event,), *_ = await store.commit(say(turn, "x" * 1_000_000))
    assert event.sequence == 2


async def test_a_failed_transaction_is_nobodys_success(store: SqliteStore) -> None:
    """When the database refuses the shared transaction nobody is told of a success, and writing goes on."""
    turn = await running(store)
    before = store.statistics

    def sabotage(transaction: Transaction) -> None:
        transaction.connection.execute("PRAGMA defer_foreign_keys=ON")
        transaction.connection.execute("INSERT INTO checkpoints VALUES ('nowhere', 1, '')")

    async with held_writer(store):
        tasks: list[asyncio.Task[object]] = [
            asyncio.create_task(store.commit(say(turn, "x"))),
            asyncio.create_task(store._writer.run(sabotage)),
        ]
        await asyncio.sleep(0)
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StateUnusable, StateUnusable]
    assert store.statistics.commits == before.commits
    _, (event,), *_ = await store.commit(say(turn, "x"))
    assert event.sequence == 2


async def test_closing_applies_what_was_handed_over(database: Path) -> None:
    """Closing applies every write that waits, and refuses later ones."""
    store = await SqliteStore.open(database)
    turns: list[Turn] = [await running(store) for _ in range(100)]
    async with held_writer(store):
        tasks = [asyncio.create_task(store.commit(say(turn, "last"))) for turn in turns]
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
    await closing
    assert len(await asyncio.gather(*tasks)) == 100
    with pytest.raises(Draining):
        await store.accept(message())
    with pytest.raises(Draining):
        await store.turn(turns[0].turn_id)
    await store.close()


async def test_tokens_add_up_to_the_day_of_the_commit(store: SqliteStore, database: Path) -> None:
    """Each commit tells the sum; days and principals are apart, and another gateway reads the same."""
    midnight = datetime(2026, 12, 2, tzinfo=UTC)
    today, turn = midnight.date(), await running(store)
    told = []
    for at, used in (
        (midnight - timedelta(microseconds=1), Usage(1, 1)),
        (midnight, Usage(10, None)),
        (midnight + timedelta(hours=23), Usage(20, 3)),
        (midnight + timedelta(hours=23), NOTHING),
    ):
        committed = await store.commit(Commit(turn, at, used=used))
        turn = committed.turn
        told.append(committed.token_day and (committed.token_day.day, committed.token_day.used))
    assert told == [(today - timedelta(days=1), 2), (today, 10), (today, 33), None]
    async with await SqliteStore.open(database) as other:
        assert await other.token_day(turn.principal_id, today) == TokenDay(turn.principal_id, today, 33)
        assert (await other.token_day(new(PrincipalId), today)).used == 0
