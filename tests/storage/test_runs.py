"""The run registry: what turns left in the store, read as runs; bounded, and nobody's who may not see it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.storage.builders import (
    PRINCIPAL,
    asked,
    begin,
    call,
    claim,
    end,
    finish,
    message,
    new,
    now,
    resolved,
    running,
)
from tyrum_gateway.app import runs as desk_module
from tyrum_gateway.app.runs import RunDesk, RunPage
from tyrum_gateway.app.step_bounds import MAX_CALLS
from tyrum_gateway.domain import transcript
from tyrum_gateway.domain.approval import Approval, Outcome
from tyrum_gateway.domain.commit import Commit, Origin
from tyrum_gateway.domain.errors import InvalidRequest, NotFound
from tyrum_gateway.domain.ids import ApprovalId, CallId, ConversationId, PrincipalId, RunId, TurnId
from tyrum_gateway.domain.policy import Decision
from tyrum_gateway.domain.principal import Principal, Role
from tyrum_gateway.domain.run import LONGEST_TARGET, LONGEST_TOOL, Run, RunApproval, RunFilter
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.turn import Turn
from tyrum_gateway.rpc.runs import run as written
from tyrum_gateway.rpc.server import MESSAGE_LIMIT
from tyrum_gateway.storage import SqliteStore

AUDITOR = Principal(new(PrincipalId), "auditor", frozenset({Role.AUDITOR}), "token")


def chatter() -> Principal:
    """Somebody who may chat, and nothing else."""
    return Principal(new(PrincipalId), "chatter", frozenset({Role.CHAT}), "token")


async def turns(store: SqliteStore, count: int, principal_id: PrincipalId = PRINCIPAL) -> list[TurnId]:
    """Accept messages, each in a conversation of its own; newest first."""
    accepted = [(await store.accept(message(principal_id=principal_id))).turn.turn_id for _ in range(count)]
    return sorted(accepted, reverse=True)


async def test_a_run_says_who_asked_with_what_and_what_came_of_it(store: SqliteStore) -> None:
    """Principal, origin, binding, bytes, attempts, tokens, times and end are those of the turn's rows."""
    who = new(PrincipalId)
    await store.ensure_principal(who, "ada", ["chat"], "aa", now())
    origin = Origin("default", "clever", "native", "", "host-1")
    turn = (await store.accept(replace(message(principal_id=who), origin=origin))).turn
    turn, *_ = await store.commit(claim(turn))
    given_up = transcript.AttemptAbandoned(1, 1, "restart")
    turn, *_ = await store.commit(Commit(replace(turn, attempt=2), now(), (given_up,)))
    turn, *_ = await store.commit(begin(turn, call(turn, CallState.PERMITTED)))
    begun = turn.calls[0]
    turn, *_ = await store.commit(end(turn, "listing"))
    told = replace(
        turn, input_tokens=12, output_tokens=3, usage_complete=False, answered_by=("main", "spare")
    )
    turn, *_ = await store.commit(replace(finish(told), turn=replace(finish(told).turn, reason="done")))

    run = await store.runs.run(turn.turn_id)

    assert (run.principal_id, run.principal, run.origin) == (who, "ada", origin)
    assert (run.state, run.reason, run.number) == (TurnState.COMPLETED, "done", 1)
    assert (run.steps, run.attempts) == (2, 3)
    assert (run.input_tokens, run.output_tokens, run.usage_complete) == (12, 3, False)
    assert run.answered_by == ("main", "spare")
    assert run.total is not None
    assert run.total > timedelta()
    assert run.output_bytes == 6
    (ran,) = run.calls
    assert (ran.call_id, ran.step, ran.tool, ran.state) == (
        begun.call_id,
        1,
        "process.run",
        CallState.SUCCEEDED,
    )
    assert (ran.operation_id, ran.process_id) == (begun.operation_id, begun.process_id)
    assert ran.binding is not None
    assert (ran.binding.binding_id, ran.binding.provider, ran.binding.profile) == (
        begun.binding_id,
        "local",
        "trusted",
    )
    assert (ran.binding.artifact_digest, ran.binding.instance_id) == ("sha256:a", "inst_1")


async def test_a_run_lists_every_question_also_one_that_was_asked_again(store: SqliteStore) -> None:
    """An approval that was superseded stands in the registry beside the one that took its place."""
    turn, first = await asked_aloud(store)
    answered = resolved(first, Outcome.SUPERSEDED)
    again = replace(first, approval_id=new(ApprovalId), created_at=now(), resolution=None)
    waiting = replace(turn.calls[0], approval_id=again.approval_id)
    turn, *_ = await store.commit(
        Commit(
            replace(turn, calls=(waiting,)),
            now(),
            (transcript.ApprovalRequested(again.call_id, again.approval_id, again.expires_at),),
            calls=(waiting,),
            opened=(again,),
            resolved=(answered,),
        )
    )
    approvals = (await store.runs.run(turn.turn_id)).approvals
    assert [(item.approval_id, item.outcome) for item in approvals] == [
        (first.approval_id, Outcome.SUPERSEDED),
        (again.approval_id, None),
    ]
    assert (approvals[0].resolved_by, approvals[0].method) == ("operator", "token")


async def test_a_call_says_what_policy_saw_of_it_last(store: SqliteStore) -> None:
    """Of several decisions the last stands; a target that is too long is left to the transcript."""
    turn, approval = await asked(store)

    async def decided(target: str) -> str:
        nonlocal turn
        event = transcript.ToolCallDecided(
            approval.call_id, Decision.REQUIRE_APPROVAL, "rule", "sha256:0", target, "why"
        )
        turn, *_ = await store.commit(Commit(turn, now(), (event,)))
        (called,) = (await store.runs.run(turn.turn_id)).calls
        return called.target

    assert (await store.runs.run(turn.turn_id)).calls[0].target == ""
    assert await decided('{"program":"/usr/bin/a"}') == '{"program":"/usr/bin/a"}'
    assert await decided('{"program":"/usr/bin/b"}') == '{"program":"/usr/bin/b"}'
    assert await decided("é" * (LONGEST_TARGET // 2)) == "é" * (LONGEST_TARGET // 2)
    assert await decided("é" * (LONGEST_TARGET // 2) + "x") == ""


async def talkative(store: SqliteStore, steps: int = 9) -> TurnId:
    """Run a turn whose model makes up many calls, each with a long name and a long target."""
    turn = await running(store)
    for step in range(steps):
        calls = tuple(
            replace(call(turn, CallState.DENIED, position), step=step, tool="t" * 10_000)
            for position in range(MAX_CALLS)
        )
        decided = tuple(
            transcript.ToolCallDecided(
                item.call_id, Decision.DENY, "rule", "sha256:0", "x" * LONGEST_TARGET, "why"
            )
            for item in calls
        )
        turn, *_ = await store.commit(Commit(turn, now(), decided, calls=calls))
    return turn.turn_id


async def test_a_run_of_many_long_calls_still_fits_into_a_message(store: SqliteStore) -> None:
    """Whatever a model makes up, its run can be read, and so can the list that it stands in."""
    found = await store.runs.run(await talkative(store))
    assert len(found.calls) == 9 * MAX_CALLS
    assert written(found).ByteSize() < MESSAGE_LIMIT
    assert (len(found.calls[0].target), found.calls[-1].target) == (LONGEST_TARGET, "")
    assert {len(called.tool) for called in found.calls} == {LONGEST_TOOL + 1}


async def test_a_page_of_large_runs_is_a_short_one(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page holds a bounded size of runs, and pages join to all of them."""
    monkeypatch.setattr(desk_module, "HELD_BYTES", 100 * LONGEST_TARGET)
    large = [await talkative(store, 1) for _ in range(4)]
    desk = RunDesk(store.runs, store.principals)
    assert len((await desk.page(AUDITOR, RunFilter(), None, 10)).runs) == 2
    assert [item.turn_id async for page in desk.all(AUDITOR, RunFilter()) for item in page] == sorted(
        large, reverse=True
    )


async def asked_aloud(store: SqliteStore) -> tuple[Turn, Approval]:
    """Bring a turn to its first question, with the event that says so."""
    turn, approval = await asked(store)
    event = transcript.ApprovalRequested(approval.call_id, approval.approval_id, approval.expires_at)
    turn, *_ = await store.commit(Commit(turn, now(), (event,)))
    return turn, approval


@pytest.mark.parametrize(
    ("spans", "waited"),
    [([], 0), ([(0, 5)], 5), ([(0, 5), (7, 9)], 7), ([(0, 5), (2, 9), (3, 4)], 9), ([(1, None), (2, 3)], 1)],
)
def test_waiting_counts_overlapping_questions_once(spans: list[tuple[int, int | None]], waited: int) -> None:
    """The time in which a human was asked is the union of the questions' spans; open ones do not count."""
    start = now()
    approvals = tuple(
        RunApproval(
            new(ApprovalId),
            new(CallId),
            start + timedelta(seconds=begin_at),
            None,
            None if end_at is None else start + timedelta(seconds=end_at),
            "",
            "",
            "",
            None,
        )
        for begin_at, end_at in spans
    )
    run = Run(
        new(TurnId),
        new(ConversationId),
        1,
        AUDITOR.principal_id,
        "",
        Origin(),
        TurnState.RUNNING,
        "",
        start,
        None,
        1,
        0,
        0,
        0,
        True,
        (),
        (),
        approvals,
    )
    assert run.waited == timedelta(seconds=waited)
    assert run.total is None


async def test_pages_join_to_the_whole_whatever_the_filter(store: SqliteStore) -> None:
    """Pages by state, principal, conversation and time hold each fitting run once, newest first."""
    desk = RunDesk(store.runs, store.principals)
    who, conversation = new(PrincipalId), (await store.accept(message())).conversation_id
    others = await turns(store, 5)
    mine = await turns(store, 4, principal_id=who)
    talk = [(await store.accept(message(conversation_id=conversation))).turn.turn_id for _ in range(3)]
    middle = now()
    late = await turns(store, 2)
    running_ = (await running(store)).turn_id

    async def listed(chosen: RunFilter, size: int) -> list[TurnId]:
        found: list[TurnId] = []
        before: TurnId | None = None
        while True:
            page = await desk.page(AUDITOR, chosen, before, size)
            assert len(page.runs) <= size
            found += [run.turn_id for run in page.runs]
            if page.next is None:
                return found
            before = page.next

    for size in (1, 3, 100):
        everything = await listed(RunFilter(), size)
        assert everything == sorted(everything, reverse=True)
        assert set(everything) >= {*others, *mine, *talk, *late, running_}
        assert await listed(RunFilter(principal_id=who), size) == mine
        assert await listed(RunFilter(state=TurnState.RUNNING), size) == [running_]
        assert (await listed(RunFilter(conversation_id=conversation), size))[:3] == talk[::-1]
        assert set(await listed(RunFilter(since=middle), size)) == {*late, running_}
        assert set(await listed(RunFilter(until=middle), size)) == set(everything) - {*late, running_}
    assert [run.turn_id async for page in desk.all(AUDITOR, RunFilter()) for run in page] == everything


async def test_the_first_and_the_last_moment_of_the_calendar_are_times(store: SqliteStore) -> None:
    """What a client can state as a time never fails as a bug: since the year 1, until the end of 9999."""
    desk = RunDesk(store.runs, store.principals)
    found = await turns(store, 2)
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    for moment, seen in ((first, 2), (last, 0)):
        since = await desk.page(AUDITOR, RunFilter(since=moment), None, 10)
        until = await desk.page(AUDITOR, RunFilter(until=moment), None, 10)
        assert (len(since.runs), len(until.runs)) == (seen, len(found) - seen)


async def test_a_page_looks_at_a_bounded_number_of_turns(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where hardly anything fits, a page ends empty with a place to go on, and going on finds the rest."""
    monkeypatch.setattr(desk_module, "LOOKED_AT", 4)
    monkeypatch.setattr(desk_module, "_BATCH", 2)
    wanted = (await running(store)).turn_id
    await turns(store, 9)
    desk, chosen = RunDesk(store.runs, store.principals), RunFilter(state=TurnState.RUNNING)
    page = await desk.page(AUDITOR, chosen, None, 10)
    assert page.runs == ()
    assert page.next is not None
    assert [run.turn_id async for runs in desk.all(AUDITOR, chosen) for run in runs] == [wanted]


async def test_a_page_of_ones_own_runs_tells_nothing_of_others(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one goes on is a turn of one's own: the id of another's would say when that was made."""
    monkeypatch.setattr(desk_module, "LOOKED_AT", 2)
    monkeypatch.setattr(desk_module, "_BATCH", 2)
    one = chatter()
    mine = await turns(store, 3, principal_id=one.principal_id)
    await turns(store, 9)
    desk = RunDesk(store.runs, store.principals)
    page = await desk.page(one, RunFilter(), None, 10)
    assert ([run.turn_id for run in page.runs], page.next) == (mine[:2], mine[1])
    theirs = (await store.runs.run((await turns(store, 1))[0])).conversation_id
    assert await desk.page(one, RunFilter(conversation_id=theirs), None, 10) == RunPage((), None)


async def test_a_chat_client_sees_its_own_runs_only(store: SqliteStore) -> None:
    """Without a role over all conversations, runs of others are neither listed nor found, nor their names."""
    one, other = chatter(), chatter()
    mine = await turns(store, 2, principal_id=one.principal_id)
    theirs = await turns(store, 2, principal_id=other.principal_id)
    desk = RunDesk(store.runs, store.principals)
    assert [run.turn_id for run in (await desk.page(one, RunFilter(), None, 10)).runs] == mine
    asked_for = RunFilter(principal_id=other.principal_id)
    assert (await desk.page(one, asked_for, None, 10)).runs == ()
    assert [run.turn_id async for runs in desk.all(other, RunFilter()) for run in runs] == theirs
    with pytest.raises(NotFound):
        await desk.run(one, theirs[0])
    await store.ensure_principal(other.principal_id, "other", ["chat"], "bb", now())
    assert await desk.principal(one, one.name) == one.principal_id
    assert await desk.principal(AUDITOR, "other") == other.principal_id
    assert await desk.principal(one, other.principal_id) == other.principal_id
    for caller, name in ((one, "other"), (one, "nobody"), (AUDITOR, "nobody")):
        with pytest.raises(InvalidRequest, match="names no principal whose runs you may see"):
            await desk.principal(caller, name)
    assert (await desk.run(one, mine[0])).turn_id == mine[0]
    assert (await desk.run(AUDITOR, theirs[0])).turn_id == theirs[0]
    with pytest.raises(NotFound):
        await desk.run(AUDITOR, new(TurnId))


def test_a_run_is_named_after_its_turn() -> None:
    """Run and turn share their characters, in both directions."""
    turn_id = new(TurnId)
    assert RunId.of(turn_id).turn_id == turn_id
    assert RunId.parse(RunId.of(turn_id), "run_id").startswith("run_")
