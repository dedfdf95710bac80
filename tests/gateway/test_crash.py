"""SIGKILL of the gateway at each persistence point: nothing accepted is lost, nothing runs twice."""

import sys
from pathlib import Path

import grpc.aio
import pytest

from tests.support import configs, crashing_gateway
from tests.support.client import Client, connected, finished, kinds
from tests.support.gateway import SHIPPED, RunningGateway
from tyrum.chat.v1 import event_pb2

pytestmark = pytest.mark.apart

REQUEST = "the-one-request"
LAUNCHER = (sys.executable, crashing_gateway.__file__)

# What the durable state at each point implies for the counting command and for its call.
TURNS = [
    ("before", "accept", 1, event_pb2.CALL_STATE_SUCCEEDED),
    ("after", "accept", 1, event_pb2.CALL_STATE_SUCCEEDED),
    ("before", "claim", 1, event_pb2.CALL_STATE_SUCCEEDED),
    ("after", "claim", 1, event_pb2.CALL_STATE_SUCCEEDED),
    ("before", "begin", 1, event_pb2.CALL_STATE_SUCCEEDED),
    ("after", "begin", 0, event_pb2.CALL_STATE_FAILED),
    ("before", "result", 1, event_pb2.CALL_STATE_SUCCEEDED),
    ("after", "result", 1, event_pb2.CALL_STATE_SUCCEEDED),
    ("before", "settle", 1, event_pb2.CALL_STATE_SUCCEEDED),
    ("after", "settle", 1, event_pb2.CALL_STATE_SUCCEEDED),
]


async def killed_during(client: Client, text: str) -> tuple[str, list[event_pb2.Event]]:
    """Send a message and follow it until the gateway dies; return the conversation and what was seen."""
    conversation, seen = "", list[event_pb2.Event]()
    try:
        async for item in client.send(text, request_id=REQUEST):
            if item.HasField("accepted"):
                conversation = item.accepted.conversation_id
            elif item.HasField("event"):
                seen.append(item.event)
    except grpc.aio.AioRpcError:
        return conversation, seen
    raise AssertionError("the gateway did not die")


def dying(directory: Path, when: str, point: str) -> RunningGateway:
    """Start a gateway that dies at a point."""
    gateway = RunningGateway(directory / "state", configs.write(directory))
    gateway.launcher = (*LAUNCHER, when, point)
    gateway.start()
    return gateway


def revived(gateway: RunningGateway) -> RunningGateway:
    """Start the shipped gateway on the state of one that died."""
    gateway.kill()
    gateway.launcher = SHIPPED
    gateway.start()
    return gateway


@pytest.mark.parametrize(("when", "point", "ran", "state"), TURNS)
async def test_killed_at_a_point_the_command_runs_at_most_once_and_the_turn_ends(
    tmp_path: Path, when: str, point: str, ran: int, state: event_pb2.CallState.ValueType
) -> None:
    """Whatever commit the gateway dies at, the outcome is what the durable state implies."""
    gateway = dying(tmp_path, when, point)
    try:
        async with connected(gateway) as client:
            conversation, seen = await killed_during(client, "count")
        revived(gateway)
        async with connected(gateway) as client:
            # Sending again under the same request id joins the turn, or opens it when nothing was accepted.
            async for item in client.send("count", request_id=REQUEST):
                if item.HasField("accepted"):
                    assert item.accepted.conversation_id == conversation or not conversation
                    conversation = item.accepted.conversation_id
            events = await client.events(conversation)
            rested = bool(seen) and kinds(seen)[-1] == "turn_finished"
            after = seen[-1].sequence if seen else 1
            resumed = [] if rested else await client.until(conversation, "turn_finished", after)
        assert configs.count(gateway.state_dir) == ran
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert [call.state for call in finished(events)] == [state]
        assert kinds(events)[-1] == "turn_finished"
        assert events[-1].turn_finished.state == event_pb2.TURN_STATE_COMPLETED
        assert [*events[:1], *seen, *resumed] == events, "a watcher that reconnects sees every event once"
    finally:
        gateway.kill()


async def test_killed_between_begin_and_call_the_model_learns_that_it_did_not_run(tmp_path: Path) -> None:
    """An operation that the provider never saw settles as failed, with the proof in words."""
    gateway = dying(tmp_path, "after", "begin")
    try:
        async with connected(gateway) as client:
            conversation, _ = await killed_during(client, "count")
        revived(gateway)
        async with connected(gateway) as client:
            await client.until(conversation, "turn_finished")
            (call,) = finished(await client.events(conversation))
        assert "did not run" in call.content
    finally:
        gateway.kill()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_while_asking_the_question_is_asked_once_and_can_be_answered(
    tmp_path: Path, when: str
) -> None:
    """A question is durable or was never asked; after the restart there is exactly one and it works."""
    gateway = dying(tmp_path, when, "ask")
    try:
        async with connected(gateway) as client:
            conversation, _ = await killed_during(client, "ask")
        revived(gateway)
        async with connected(gateway) as client:
            asked = (await client.until(conversation, "approval_requested"))[-1]
            await client.resolve(asked.approval_requested.approval_id, approve=True)
            await client.until(conversation, "turn_finished")
            events = await client.events(conversation)
        assert kinds(events).count("approval_requested") == 1
        assert configs.count(gateway.state_dir, "asked") == 1
    finally:
        gateway.kill()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_while_an_answer_is_recorded_it_counts_once_or_can_be_given_again(
    tmp_path: Path, when: str
) -> None:
    """An approval that was committed lets the call run once; one that was not is still pending."""
    gateway = dying(tmp_path, when, "answer")
    try:
        async with connected(gateway) as client:
            stream = client.send("ask", request_id=REQUEST)
            accepted = (await anext(stream)).accepted
            asked = (await client.until(accepted.conversation_id, "approval_requested"))[-1]
            approval = asked.approval_requested.approval_id
            with pytest.raises(grpc.aio.AioRpcError):
                await client.resolve(approval, approve=True)
        revived(gateway)
        async with connected(gateway) as client:
            resolved = await client.resolve(approval, approve=True)
            await client.until(accepted.conversation_id, "turn_finished")
            events = await client.events(accepted.conversation_id)
        assert resolved.resolved_by == "operator"
        assert kinds(events).count("approval_resolved") == 1
        assert configs.count(gateway.state_dir, "asked") == 1
    finally:
        gateway.kill()


@pytest.mark.parametrize("point", ["claim", "begin", "result", "settle"])
async def test_a_store_that_fails_for_a_while_ends_neither_the_gateway_nor_a_turn(
    tmp_path: Path, point: str
) -> None:
    """On a full disk a turn waits; once there is room it goes on from its rows, and nothing runs twice."""
    gateway = dying(tmp_path, "failing", point)
    try:
        async with connected(gateway) as client:
            accepted, events = await client.turn("count")
        assert gateway.process is not None
        assert gateway.process.poll() is None
        assert events[-1].turn_finished.state == event_pb2.TURN_STATE_COMPLETED
        assert configs.count(gateway.state_dir) == 1
        assert accepted.conversation_id
    finally:
        gateway.kill()
