"""Reading: bounded, by index, off the loop's thread."""

import asyncio
import re
import sqlite3
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from tests.storage.builders import (
    asked,
    begin,
    call,
    claim,
    finish,
    message,
    new,
    now,
    resolved,
    running,
    say,
)
from tyrum_gateway.domain.checkpoint import Checkpoint
from tyrum_gateway.domain.commit import Commit
from tyrum_gateway.domain.errors import NotFound
from tyrum_gateway.domain.ids import ApprovalId, ConversationId, PrincipalId, TurnId
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.turn import Turn
from tyrum_gateway.storage import SqliteStore, audit_log, run_log, statements
from tyrum_gateway.storage.statements import Statement


async def _after(store: SqliteStore, events: int) -> Turn:
    """Begin a second turn behind a first one with this many events."""
    turn = await running(store)
    for _ in range(0, events, 500):
        turn, *_ = await store.commit(say(turn, *["x"] * min(500, events)))
    await store.commit(replace(finish(turn), checkpoint=Checkpoint(1, "Turn 1")))
    return await running(store, turn.conversation_id)


async def test_a_window_is_what_the_prompt_needs(store: SqliteStore) -> None:
    """A window holds the newest events of earlier turns in order, and all of the turn's own."""
    turn = await _after(store, 5)
    turn, (said,), *_ = await store.commit(say(turn, "own"))
    everything = list(await store.events(turn.conversation_id, 0, 100))
    window = await store.window(turn, 3)
    assert [event for past in window.earlier for event in past.events] == everything[4:7]
    assert not window.complete
    assert [event.turn_id for event in window.own] == [turn.turn_id] * 2
    assert window.own[-1] == said
    assert window.checkpoint == Checkpoint(1, "Turn 1")
    whole = await store.window(turn, 7)
    assert [event for past in whole.earlier for event in past.events] == everything[:7]
    assert whole.complete
    assert not (await store.window(turn, 6)).complete


async def test_later_turns_are_not_in_the_window(store: SqliteStore) -> None:
    """A queued message behind the turn is no part of its window; a first turn has nothing before it."""
    turn = await running(store)
    await store.accept(message(conversation_id=turn.conversation_id))
    window = await store.window(turn, 10)
    assert (len(window.earlier), len(window.own), window.complete) == (0, 1, True)
    assert window.checkpoint == Checkpoint()


async def test_the_cost_of_a_turn_does_not_grow(store: SqliteStore) -> None:
    """Ten thousand events behind a turn change neither its reads nor the rows they fetch."""
    costs = []
    for events in (40, 10_000):
        turn = await _after(store, events)
        before = store.statistics
        await store.next_turn(turn.conversation_id)
        await store.turn(turn.turn_id)
        await store.window(turn, 40)
        await store.events(turn.conversation_id, 0, 20)
        after = store.statistics
        costs.append((after.reads - before.reads, after.rows_read - before.rows_read))
    assert costs == [(4, 1 + 1 + (40 + 1 + 1) + 20)] * 2


_READING = {
    name: statement
    for module in (statements, audit_log, run_log)
    for name, statement in vars(module).items()
    if isinstance(statement, Statement) and statement.sql.startswith("SELECT")
}
_WALKS = {
    # Lists of the newest read their index from its end, as far as the limit; unfinished turns are few.
    "NEWEST_CONVERSATIONS",
    "NEWEST_BINDINGS",
    "NEWEST_RUNS",
    "UNFINISHED",
    # The table itself, from its end: its key is the number of the row.
    "AUDIT_HEAD",
}


@pytest.mark.parametrize("name", _READING)
async def test_every_read_uses_an_index(store: SqliteStore, database: Path, name: str) -> None:
    """No reading statement walks or sorts a table."""
    del store
    statement = _READING[name]
    parameters = dict.fromkeys(re.findall(r":(\w+)", statement.sql), 1) | dict(statement.constants)
    connection = sqlite3.connect(database)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", parameters)]
    connection.close()
    assert not [step for step in plan if "TEMP B-TREE" in step or "AUTOMATIC" in step]
    for step in plan:
        if step.startswith("SCAN") and not step.startswith(("SCAN anon_", "SCAN CONSTANT ROW")):
            assert name in _WALKS
            assert "USING INDEX" in step or step == "SCAN audit"


async def test_commits_tell_what_is_next_as_a_read_would(store: SqliteStore) -> None:
    """An accepted turn is due when no other one is unfinished; an end tells whether another one is."""
    first = await store.accept(message(request_id="first"))
    conversation = first.conversation_id
    assert first.due
    elsewhere = await store.accept(message())
    second = await store.accept(message(conversation_id=conversation))
    assert not second.due
    assert not (await store.accept(message(request_id="first"))).due, "a repeat opens nothing"
    running, *_ = await store.commit(claim(first.turn))
    assert (await store.commit(finish(running))).followed
    assert await store.next_turn(conversation) == second.turn
    third = await store.accept(message(conversation_id=conversation))
    running, *_ = await store.commit(claim(second.turn))
    assert (await store.commit(finish(third.turn))).followed, "an older one is unfinished"
    assert not (await store.commit(finish(running))).followed
    assert await store.next_turn(conversation) is None
    assert (await store.accept(message(conversation_id=conversation))).due
    assert await store.next_turn(elsewhere.conversation_id) == elsewhere.turn


async def test_next_turn_is_the_oldest_unfinished(store: SqliteStore) -> None:
    """Turns are taken in order, one that waits for an approval keeps its place, and all rest in the end."""
    turn, approval = await asked(store)
    queued = (await store.accept(message(conversation_id=turn.conversation_id))).turn
    assert await store.next_turn(turn.conversation_id) == turn
    turn, *_ = await store.commit(replace(finish(turn), resolved=(resolved(approval),)))
    assert await store.next_turn(turn.conversation_id) == queued
    queued, *_ = await store.commit(claim(queued))
    await store.commit(finish(queued))
    assert await store.next_turn(turn.conversation_id) is None
    assert await store.next_turn(new(ConversationId)) is None


async def test_unfinished_lists_conversations_with_work(store: SqliteStore) -> None:
    """At start the gateway finds conversations whose next turn is queued or running, and no others."""
    queued = (await store.accept(message())).turn
    active = await running(store)
    waiting, _ = await asked(store)
    await store.accept(message(conversation_id=waiting.conversation_id))
    await store.accept(message(conversation_id=active.conversation_id))
    await store.commit(finish(await running(store)))
    expected = sorted((turn.conversation_id, turn.principal_id) for turn in (queued, active))
    assert list(await store.unfinished()) == expected


async def test_calls_of_the_present_step_only(store: SqliteStore) -> None:
    """A turn reads with its step's calls in order, and with none once the step is over."""
    turn = await running(store)
    calls = tuple(call(turn, CallState.PERMITTED, index) for index in range(3))
    turn, *_ = await store.commit(Commit(replace(turn, calls=calls), now(), calls=tuple(reversed(calls))))
    assert (await store.turn(turn.turn_id)).turn == turn
    turn, *_ = await store.commit(Commit(replace(turn, step=2, calls=()), now()))
    assert (await store.turn(turn.turn_id)).turn == turn
    last = call(turn, CallState.CANCELLED)
    over = replace(turn, state=TurnState.CANCELLED, calls=(), reason="enough")
    over, *_ = await store.commit(Commit(over, now(), calls=(last,)))
    assert (await store.turn(turn.turn_id)).turn == over


async def test_lists_page_without_gap_or_repeat(store: SqliteStore) -> None:
    """Pages of conversations, approvals and bindings join to the whole, in the promised order."""
    for _ in range(5):
        turn = await running(store)
        await store.commit(begin(turn, call(turn, CallState.PERMITTED)))
        await asked(store)
    conversations = await store.conversations(None, None, 100)
    assert [entry.conversation_id for entry in conversations] == sorted(
        (entry.conversation_id for entry in conversations), reverse=True
    )
    assert len(conversations) == 10
    paged = [*await store.conversations(None, None, 7)]
    paged += await store.conversations(None, paged[-1].conversation_id, 7)
    assert paged == list(conversations)

    async def approvals(after: ApprovalId | None, limit: int) -> list[ApprovalId]:
        found = await store.approvals(conversation_id=None, include_resolved=False, after=after, limit=limit)
        return [entry.approval_id for entry in found]

    everything = await approvals(None, 100)
    assert everything == sorted(everything)
    first = await approvals(None, 3)
    assert first + await approvals(first[-1], 3) == everything

    bindings = await store.bindings("", 100)
    assert len(bindings) == 5
    newest = await store.bindings("", 2)
    assert [*newest, *await store.bindings(newest[-1].binding.binding_id, 3)] == list(bindings)
    assert bindings[0].binding.binding_id == max(entry.binding.binding_id for entry in bindings)


async def test_conversations_of_an_owner(store: SqliteStore) -> None:
    """The conversations of one principal are listed without those of others, page by page."""
    owner = new(PrincipalId)
    mine = []
    for _ in range(4):
        mine.append((await store.accept(message(principal_id=owner))).conversation_id)
        await store.accept(message())
    mine.sort(reverse=True)
    first = await store.conversations(owner, None, 3)
    rest = await store.conversations(owner, first[-1].conversation_id, 3)
    assert [entry.conversation_id for entry in (*first, *rest)] == mine


async def test_approvals_by_conversation_and_state(store: SqliteStore) -> None:
    """Resolved approvals and those of other conversations are listed only on request."""
    turn, approval = await asked(store)
    answered = resolved(approval)
    await store.commit(Commit(turn, now(), resolved=(answered,)))
    _, pending = await asked(store)
    for conversation, include, expected in (
        (None, True, [answered, pending]),
        (None, False, [pending]),
        (turn.conversation_id, True, [answered]),
        (turn.conversation_id, False, []),
    ):
        found = await store.approvals(
            conversation_id=conversation, include_resolved=include, after=None, limit=9
        )
        assert list(found) == sorted(expected, key=lambda entry: entry.approval_id)


async def test_expiry(store: SqliteStore) -> None:
    """The first pending expiry is known, and what is over is listed, oldest first; answered ones never."""
    assert await store.next_expiry() is None
    _, later = await asked(store, lasts=timedelta(minutes=2))
    turn, sooner = await asked(store, lasts=timedelta(minutes=1))
    assert await store.next_expiry() == sooner.expires_at
    assert list(await store.expired(sooner.expires_at, 9)) == [sooner]
    assert list(await store.expired(later.expires_at, 9)) == [sooner, later]
    await store.commit(Commit(turn, now(), resolved=(resolved(sooner),)))
    assert await store.next_expiry() == later.expires_at


async def test_unknown_ids_are_named(store: SqliteStore) -> None:
    """Reading what does not exist says what and which."""
    turn, conversation, approval = new(TurnId), new(ConversationId), new(ApprovalId)
    with pytest.raises(NotFound, match=turn):
        await store.turn(turn)
    with pytest.raises(NotFound, match=conversation):
        await store.conversation(conversation)
    with pytest.raises(NotFound, match=approval):
        await store.approval(approval)


async def test_nothing_blocks_the_loop(store: SqliteStore) -> None:
    """Neither writes nor reads call SQLite or the file system on the loop's thread."""
    with blockbuster_ctx():
        turn = await running(store)
        turn, *_ = await store.commit(say(turn, "x"))
        await asyncio.gather(*(store.window(turn, 10) for _ in range(10)))
        await store.events(turn.conversation_id, 0, 10)


async def test_closing_answers_the_reads_under_way(database: Path) -> None:
    """Closing waits for reads under way and leaves neither a connection's thread nor a log file behind."""
    store = await SqliteStore.open(database)
    turn = await running(store)
    before = set(threading.enumerate())
    reads = [asyncio.create_task(store.turn(turn.turn_id)) for _ in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert {view.turn for view in await asyncio.gather(*reads)} == {turn}
    for thread in set(threading.enumerate()) - before:
        await asyncio.to_thread(thread.join, 30)
        assert not thread.is_alive()
    assert [file.name for file in _files(database.parent)] == ["tyrum.db"]


def _files(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def test_cancelled_reads_leave_the_connections_usable(store: SqliteStore) -> None:
    """A burst of cancelled reads exhausts nothing."""
    turn = await running(store)
    for _ in range(5):
        tasks = [asyncio.create_task(store.window(turn, 10)) for _ in range(20)]
        await asyncio.sleep(0.001)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    windows = await asyncio.gather(*(store.window(turn, 10) for _ in range(20)))
    assert all(len(window.own) == 1 for window in windows)


async def test_reads_that_nobody_waits_for_do_not_hold_up_the_next(store: SqliteStore) -> None:
    """When endless reads are given up, as many as there are connections, the next read is answered."""
    reads = store._reads
    await asyncio.gather(*(store.unfinished() for _ in range(4)))
    begun = [threading.Event() for _ in reads._free]
    for event, (_, driver) in zip(begun, reads._free, strict=True):
        await driver.create_function("begun", 0, event.set)
    endless = Statement(
        "WITH RECURSIVE c(x) AS (SELECT begun() UNION ALL SELECT x FROM c) SELECT count(*) FROM c", {}
    )
    given_up = [asyncio.create_task(reads.fetch((endless, {}))) for _ in begun]
    async with asyncio.timeout(30):
        while not all(event.is_set() for event in begun):  # noqa: ASYNC110 - set by SQLite, in a thread
            await asyncio.sleep(0.01)
    for task in given_up:
        task.cancel()
    await asyncio.gather(*given_up, return_exceptions=True)
    assert len(begun) == 4
    assert await store.unfinished() == []
