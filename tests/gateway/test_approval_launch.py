"""An answered call is judged once more when it begins: by receipt, time and rules. And the inbox, watched."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from tests.support import configs
from tests.support.client import DEADLINE, Client, connected, finished
from tests.support.gateway import TYRUM, RunningGateway, client_environment
from tests.support.questions import Asked, asked, ended, shown, states
from tests.support.terminal import on_terminal
from tyrum.approval.v1 import approval_pb2
from tyrum.chat.v1 import event_pb2

SCRIPT = """\
version: 1
scenarios:
  - user: lapsed
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [tee, -a, first], stdin: "x\\n"}}
          - {tool: process.run, arguments: {argv: [tee, -a, second], stdin: "x\\n"}}
      - deltas: ["Done."]
  - user: bad idea
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [tee, -a, before], stdin: "x\\n"}}
          - {tool: process.run, arguments: {argv: [tee, -a, barred], stdin: "x\\n"}}
      - deltas: ["Done."]
  - user: forged
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [tee, -a, forged], stdin: "x\\n"}}
      - deltas: ["Done."]
  - user: {prefix: ""}
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [tee, -a, single], stdin: "x\\n"}}
      - deltas: ["Done."]
"""
NOTHING = "      []"
DENIED = """\
      - id: not-any-more
        decision: deny
        reason: it was a bad idea
        match: {program: /usr/bin/tee, argv: [-a, barred]}
"""
LONG_AGO = "UPDATE approvals SET resolved_at = resolved_at - 172800000000 WHERE approval_id = ?"
FORGED_CALL = "UPDATE calls SET state = 'permitted' WHERE approval_id = ?"
FORGED_TURN = "UPDATE turns SET state = 'running' WHERE turn_id = ?"


@dataclass(frozen=True, slots=True)
class Place:
    """A gateway that was down for long, came back with a new rule, and found edited rows."""

    gateway: RunningGateway
    lapsed: Asked
    """Its second call was approved two days ago."""
    barred: Asked
    """Its second call was approved, and a rule denies it now."""
    forged: Asked
    """Its call is permitted, and its question was never answered."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The gateway of this file, after its one restart."""
    directory = tmp_path_factory.mktemp("launch")
    gateway = RunningGateway(directory / "state", configs.write(directory, script=SCRIPT, rules=NOTHING))

    async def prepare() -> tuple[Asked, Asked, Asked]:
        async with connected(gateway) as client:
            lapsed, barred = await asked(client, "lapsed", 2), await asked(client, "bad idea", 2)
            for question in (lapsed, barred):
                await client.resolve(question.approvals[1], approve=True)
            return lapsed, barred, await asked(client, "forged")

    gateway.start()
    try:
        lapsed, barred, forged = asyncio.run(prepare())
        gateway.kill()
        edit(
            gateway,
            (LONG_AGO, lapsed.approvals[1]),
            (FORGED_CALL, forged.approvals[0]),
            (FORGED_TURN, forged.turn),
        )
        configs.write(directory, script=SCRIPT, rules=DENIED)
        gateway.start()
        yield Place(gateway, lapsed, barred, forged)
    finally:
        gateway.kill()


@pytest.fixture
async def client(place: Place) -> AsyncIterator[Client]:
    """The operator."""
    async with connected(place.gateway) as connection:
        yield connection


def edit(gateway: RunningGateway, *statements: tuple[str, str]) -> None:
    """Change rows while the gateway is down."""
    with closing(sqlite3.connect(gateway.state_dir / "tyrum.sqlite3")) as connection, connection:
        for statement, value in statements:
            assert connection.execute(statement, (value,)).rowcount == 1


async def test_an_approval_does_not_stand_for_ever(place: Place, client: Client) -> None:
    """A call that could not begin for longer than its question was open is asked about again."""
    question = place.lapsed
    await client.resolve(question.approvals[0], approve=True)
    again = await next_question(client, question)
    assert again not in question.approvals
    events = await client.events(question.conversation)
    superseded = [event.approval_resolved for event in events if event.HasField("approval_resolved")][-1]
    assert superseded.outcome == event_pb2.APPROVAL_OUTCOME_SUPERSEDED
    assert superseded.approval_id == question.approvals[1]
    assert superseded.reason == "the approval was given too long ago"
    listed = await client.approvals.GetApproval(
        approval_pb2.GetApprovalRequest(approval_id=superseded.approval_id), metadata=client.metadata
    )
    assert listed.approval.outcome == event_pb2.APPROVAL_OUTCOME_SUPERSEDED
    assert listed.approval.resolved_by == "operator"
    assert configs.count(place.gateway.state_dir, "second") == 0
    await client.resolve(again, approve=True)
    assert states(await ended(client, question)) == ["SUCCEEDED", "SUCCEEDED", "COMPLETED"]
    assert configs.count(place.gateway.state_dir, "second") == 1


async def next_question(client: Client, question: Asked) -> str:
    """Wait for the question after the two that are known."""
    events = await client.events(question.conversation)
    known = [event.sequence for event in events if event.HasField("approval_requested")]
    found = await client.until(question.conversation, "approval_requested", known[1])
    return found[-1].approval_requested.approval_id


async def test_a_deny_of_today_beats_an_approval_of_yesterday(place: Place, client: Client) -> None:
    """A call that was approved before the operator's new rules deny it does not run."""
    await client.resolve(place.barred.approvals[0], approve=True)
    events = await ended(client, place.barred)
    assert states(events) == ["SUCCEEDED", "DENIED", "COMPLETED"]
    assert finished(events)[1].content == "denied by policy: it was a bad idea"
    assert configs.count(place.gateway.state_dir, "barred") == 0


async def test_a_call_without_its_receipt_does_not_run(place: Place, client: Client) -> None:
    """A call that rows claim to be permitted, while nobody approved it, fails its turn and never begins."""
    events = await ended(client, place.forged)
    assert states(events) == ["FAILED", "FAILED"]
    assert "incident" in events[-1].turn_finished.reason
    assert configs.count(place.gateway.state_dir, "forged") == 0


async def read_until(
    stream: object, holds: Callable[[approval_pb2.WatchApprovalsResponse], bool]
) -> list[approval_pb2.WatchApprovalsResponse]:
    """Read items until one of them is as wanted."""
    seen = []
    async for item in stream:  # type: ignore[attr-defined]
        seen.append(item)
        if holds(item):
            return seen
    raise AssertionError("the stream ended")


async def test_the_inbox_is_watched_without_answering_it(client: Client) -> None:
    """A watcher gets what waits, then what is asked and resolved; going away resolves nothing."""
    first = await asked(client, "watched one")
    request = approval_pb2.WatchApprovalsRequest()
    watch = client.approvals.WatchApprovals(request, metadata=client.metadata, timeout=DEADLINE)
    waiting = await read_until(watch, lambda item: item.HasField("caught_up"))
    assert first.approvals[0] in [item.approval.approval_id for item in waiting]
    assert not any(item.approval.outcome for item in waiting)

    second = await asked(client, "watched two")
    opened = await read_until(watch, lambda item: item.approval.approval_id == second.approvals[0])
    assert opened[-1].approval == await shown(client, second.approvals[0])

    own = client.approvals.WatchApprovals(
        approval_pb2.WatchApprovalsRequest(conversation_id=second.conversation),
        metadata=client.metadata,
        timeout=DEADLINE,
    )
    found = await read_until(own, lambda item: item.HasField("caught_up"))
    assert [item.approval.approval_id for item in found[:-1]] == list(second.approvals)

    await client.resolve(first.approvals[0], approve=False)
    closed = await read_until(watch, lambda item: item.approval.outcome != 0)
    assert closed[-1].approval == await shown(client, first.approvals[0])
    watch.cancel()
    await client.resolve(second.approvals[0], approve=False)
    resolved = await read_until(own, lambda item: item.approval.outcome != 0)
    assert {item.approval.conversation_id for item in resolved} == {second.conversation}
    own.cancel()

    third = await asked(client, "watched three")
    left = client.approvals.WatchApprovals(request, metadata=client.metadata, timeout=DEADLINE)
    await read_until(left, lambda item: item.HasField("caught_up"))
    left.cancel()
    assert not (await shown(client, third.approvals[0])).outcome
    await client.resolve(third.approvals[0], approve=True)
    assert states(await ended(client, third)) == ["SUCCEEDED", "COMPLETED"]


async def test_the_inbox_is_watched_from_the_command_line(place: Place, client: Client) -> None:
    """`tyrum approvals watch` prints what waits, and that it goes on watching."""
    approval = (await asked(client, "shown")).approvals[0]
    environment = client_environment(place.gateway.state_dir) | {"TERM": "xterm", "NO_COLOR": "1"}

    def look() -> None:
        with on_terminal([str(TYRUM), "approvals", "watch"], environment) as terminal:
            terminal.wait_for(f"{approval}  pending, for operator, until ")
            terminal.wait_for("watching; Ctrl-C ends this and resolves nothing")

    await asyncio.to_thread(look)
