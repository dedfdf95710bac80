"""SIGKILL of the gateway at each persistence point: nothing accepted is lost, nothing runs twice.

One state directory goes through all of these deaths; each test finds a living gateway and leaves one.
"""

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest

from tests.support import configs
from tests.support.client import DEADLINE, Client, connected, finished, kinds
from tests.support.crashing_gateway import MARK, POINTS
from tests.support.gateway import RunningGateway
from tests.support.nursery import ForkedGateway, Nursery
from tyrum.approval.v1 import approval_pb2
from tyrum.chat.v1 import chat_pb2, event_pb2

SUCCEEDED, FAILED = event_pb2.CALL_STATE_SUCCEEDED, event_pb2.CALL_STATE_FAILED

# What the durable state at each point implies for the counting command and for its call.
TURNS = {
    "accepting": (1, SUCCEEDED),
    "accepted": (1, SUCCEEDED),
    "claiming": (1, SUCCEEDED),
    "attempt begun": (1, SUCCEEDED),
    "hydrated": (1, SUCCEEDED),
    "generated": (1, SUCCEEDED),
    "decided": (1, SUCCEEDED),
    "binding committed": (0, FAILED),
    "result received": (1, SUCCEEDED),
    "result committed": (1, SUCCEEDED),
    "checkpoint": (1, SUCCEEDED),
    "settled": (1, SUCCEEDED),
}
BEGUN = frozenset({"attempt begun", "hydrated", "generated", "decided"})
"""Points at which the first attempt had begun and nothing of it was durable: it is given up."""
ASKING = ("approval creating", "approval created")
ANSWERING = ("approval resolving", "approval resolved")


@dataclass(slots=True)
class Lineage:
    """Gateways that follow each other on one state directory."""

    directory: Path
    gateway: RunningGateway

    def arm(self, point: str) -> None:
        """Have the gateway die at a point."""
        draft = self.directory / "draft"
        draft.write_text(point, encoding="utf-8")
        draft.replace(self.directory / "armed")

    async def succeed(self) -> None:
        """Wait until the gateway has killed itself, and start its successor."""
        process = self.gateway.process
        assert process is not None
        async with asyncio.timeout(DEADLINE):
            while process.poll() is None:  # noqa: ASYNC110 - a process of subprocess has no event
                await asyncio.sleep(0.02)
        assert not (self.directory / "armed").exists(), "it died elsewhere"
        await asyncio.to_thread(self.gateway.start)

    def ran(self, name: str) -> int:
        """How often a counting command ran."""
        return configs.count(self.gateway.state_dir, name)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lineage]:
    """The first gateway."""
    directory = tmp_path_factory.mktemp("crash")
    programs = directory / "programs"
    programs.mkdir()
    (programs / "mark").write_text(f"#!/bin/sh\necho x >>{MARK}\nexec sleep 65\n", encoding="utf-8")
    (programs / "mark").chmod(0o755)
    config = configs.write(
        directory,
        script=configs.COUNTING_SCRIPT.replace("scenarios:\n", MARKING),
        rules=configs.COUNTING_RULE + MARKING_RULE.format(program=programs / "mark"),
        profile=f"path: [{programs}, /usr/bin, /bin]",
    )
    nursery = Nursery("tests.support.crashing_gateway", directory)
    gateway = ForkedGateway(directory / "state", config, nursery=nursery)
    try:
        gateway.start()
        yield Lineage(directory, gateway)
    finally:
        gateway.kill()
        nursery.close()


MARKING = """\
scenarios:
  - user: mark
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [mark]}}
      - deltas: ["Marked."]
"""
MARKING_RULE = """\
      - id: mark
        decision: allow
        author: the test
        may_start_others: true
        match: {{tool: process.run, program: {program}, replaceable: true}}
"""


@pytest.fixture
def lineage(started: Lineage) -> Lineage:
    """A living gateway that has nothing armed."""
    (started.directory / "armed").unlink(missing_ok=True)
    process = started.gateway.process
    if process is None or process.poll() is not None:
        started.gateway.start()
    return started


async def watched(client: Client, conversation: str, seen: list[event_pb2.Event]) -> None:
    """Follow a conversation from where `seen` ends until its second turn has, or the gateway dies."""
    request = chat_pb2.WatchRequest(
        conversation_id=conversation, after_sequence=seen[-1].sequence, durable_only=True
    )
    watch = client.chat.Watch(request, metadata=client.metadata, timeout=DEADLINE)
    try:
        while kinds(seen).count("turn_finished") < 2:
            seen += [item.event for item in (await anext(aiter(watch))).items]
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise
    finally:
        watch.cancel()


async def told(client: Client, text: str, conversation: str, request: str) -> str:
    """Send a message, again when the gateway dies before it answers; return what it accepted, or nothing."""
    try:
        return (await anext(client.send(text, conversation, request))).accepted.turn_id
    except grpc.aio.AioRpcError:
        return ""


async def die_and_end(lineage: Lineage, point: str, text: str) -> list[event_pb2.Event]:
    """Let a turn's gateway die at a point, let its successor end the turn; return the turn's events.

    A client that watches all the while and one that sends again must not notice.
    """
    request, seen = uuid.uuid4().hex, list[event_pb2.Event]()
    async with connected(lineage.gateway) as client:
        accepted, _ = await client.turn("hello")
        conversation = accepted.conversation_id
        seen += await client.events(conversation)
        lineage.arm(point)
        watcher = asyncio.create_task(watched(client, conversation, seen))
        first = await told(client, text, conversation, request)
        await lineage.succeed()
        await watcher
    async with connected(lineage.gateway) as client:
        if point != "accepting":
            await watched(client, conversation, seen)  # nobody has to ask for what was accepted
        # Sending again under the same request id joins the turn, or opens it when nothing was accepted.
        turn = await told(client, text, conversation, request)
        assert turn == first or not first
        await watched(client, conversation, seen)
        events = await client.events(conversation)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert seen == events, "a watcher that reconnects sees every event once"
    assert kinds(events).count("user_message") == 2
    own = [event for event in events if event.turn_id == turn]
    assert own[-1].turn_finished.state == event_pb2.TURN_STATE_COMPLETED
    return own


def test_every_named_point_is_killed_at() -> None:
    """No point of the table is left out."""
    assert {*TURNS, *ASKING, *ANSWERING, "provider called"} == set(POINTS)


@pytest.mark.parametrize("point", TURNS)
async def test_killed_at_a_point_the_command_runs_at_most_once_and_the_turn_ends(
    lineage: Lineage, point: str
) -> None:
    """Whatever point the gateway dies at, the outcome is what the durable state implies."""
    before = lineage.ran("counted")
    events = await die_and_end(lineage, point, "count")
    ran, state = TURNS[point]
    assert lineage.ran("counted") == before + ran
    assert [call.state for call in finished(events)] == [state]
    assert kinds(events).count("tool_call_started") == 1
    given_up = [event.attempt_abandoned for event in events if event.HasField("attempt_abandoned")]
    assert [attempt.step for attempt in given_up].count(1) == (point in BEGUN)


async def test_killed_between_begin_and_call_the_model_learns_that_it_did_not_run(lineage: Lineage) -> None:
    """An operation that the provider never saw settles as failed, with the proof in words."""
    (call,) = finished(await die_and_end(lineage, "binding committed", "count"))
    assert call.state == FAILED
    assert "did not run" in call.content


async def test_killed_while_the_command_runs_it_is_ended_and_told_so(lineage: Lineage) -> None:
    """A command dies with its gateway; the successor reads how it ended, and does not run it again."""
    mark = lineage.gateway.state_dir / "workspaces/default" / MARK
    mark.unlink(missing_ok=True)
    (call,) = finished(await die_and_end(lineage, "provider called", "mark"))
    assert lineage.ran(MARK) == 1
    assert (call.state, call.process.cause) == (FAILED, "provider_gone")


async def resolved_everywhere(lineage: Lineage, client: Client, conversation: str) -> list[event_pb2.Event]:
    """Check that the only question of a conversation has one outcome, and its command ran."""
    await client.until(conversation, "turn_finished")
    events = await client.events(conversation)
    assert kinds(events).count("approval_requested") == 1
    assert kinds(events).count("approval_resolved") == 1
    assert [call.state for call in finished(events)] == [SUCCEEDED]
    listed = await client.approvals.ListApprovals(
        approval_pb2.ListApprovalsRequest(conversation_id=conversation, include_resolved=True),
        metadata=client.metadata,
        timeout=DEADLINE,
    )
    assert [one.outcome for one in listed.approvals] == [event_pb2.APPROVAL_OUTCOME_APPROVED]
    assert configs.count(lineage.gateway.state_dir, "asked") > 0
    return events


@pytest.mark.parametrize("point", ASKING)
async def test_killed_while_asking_the_question_is_asked_once_and_can_be_answered(
    lineage: Lineage, point: str
) -> None:
    """A question is durable or was never asked; after the restart there is exactly one and it works."""
    before = lineage.ran("asked")
    async with connected(lineage.gateway) as client:
        lineage.arm(point)
        stream = client.send("ask")
        conversation = (await anext(stream)).accepted.conversation_id
        await lineage.succeed()
        await stream.aclose()
    async with connected(lineage.gateway) as client:
        asked = (await client.until(conversation, "approval_requested"))[-1]
        await client.resolve(asked.approval_requested.approval_id, approve=True)
        await resolved_everywhere(lineage, client, conversation)
    assert lineage.ran("asked") == before + 1


@pytest.mark.parametrize("point", ANSWERING)
async def test_killed_while_an_answer_is_recorded_it_counts_once_or_can_be_given_again(
    lineage: Lineage, point: str
) -> None:
    """An approval that was committed lets the call run once; one that was not is still pending."""
    before = lineage.ran("asked")
    async with connected(lineage.gateway) as client:
        stream = client.send("ask")
        conversation = (await anext(stream)).accepted.conversation_id
        await stream.aclose()
        asked = (await client.until(conversation, "approval_requested"))[-1]
        approval = asked.approval_requested.approval_id
        lineage.arm(point)
        with pytest.raises(grpc.aio.AioRpcError):
            await client.resolve(approval, approve=True)
        await lineage.succeed()
    async with connected(lineage.gateway) as client:
        if point == "approval resolved":
            await client.until(conversation, "turn_finished")
            assert lineage.ran("asked") == before + 1, "it goes on without being answered again"
        resolved = await client.resolve(approval, approve=True)
        assert resolved.resolved_by == "operator"
        await resolved_everywhere(lineage, client, conversation)
    assert lineage.ran("asked") == before + 1


@pytest.mark.parametrize("commit", ["claim", "begin", "result", "settle"])
async def test_a_store_that_fails_for_a_while_ends_neither_the_gateway_nor_a_turn(
    lineage: Lineage, commit: str
) -> None:
    """On a full disk a turn waits; once there is room it goes on from its rows, and nothing runs twice."""
    before, pid = lineage.ran("counted"), lineage.gateway.pid
    async with connected(lineage.gateway) as client:
        lineage.arm(f"failing {commit}")
        _, events = await client.turn("count")
    assert not (lineage.directory / "armed").exists()
    assert lineage.gateway.pid == pid
    assert lineage.gateway.process is not None
    assert lineage.gateway.process.poll() is None
    assert events[-1].turn_finished.state == event_pb2.TURN_STATE_COMPLETED
    assert lineage.ran("counted") == before + 1


async def test_a_killed_gateway_leaves_its_state_directory_to_one_successor(lineage: Lineage) -> None:
    """After SIGKILL the next gateway starts at once, and again it is the only one."""
    gateway = lineage.gateway
    await asyncio.to_thread(gateway.restart)
    second = await asyncio.to_thread(gateway.tyrum, "serve", "--state-dir", str(gateway.state_dir))
    assert second.returncode == 1
    assert f"process {gateway.pid}" in second.stderr
    async with connected(gateway) as client:
        _, events = await client.turn("still there?")
    assert events[-1].turn_finished.state == event_pb2.TURN_STATE_COMPLETED
