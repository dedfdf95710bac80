"""Turns of one conversation run one after the other, those of different conversations side by side."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.support import configs
from tests.support.client import connected, kinds
from tests.support.gateway import RunningGateway, serving
from tyrum.chat.v1 import chat_pb2, event_pb2

SCRIPT = """\
version: 1
scenarios:
  - user: hold
    steps:
      - deltas: ["Held."]
        barrier: go
        calls:
          - {tool: process.run, arguments: {argv: [tee, -a, counted], stdin: "x\\n"}}
      - deltas: ["Done."]
  - user: ask
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [tee, -a, asked], stdin: "x\\n"}}
      - deltas: ["Answered."]
  - user: {prefix: ""}
    steps:
      - deltas: ["Said."]
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway whose model can be held."""
    directory = tmp_path_factory.mktemp("serial")
    with serving(directory, configs.write(directory, script=SCRIPT)) as running:
        yield running


async def test_a_message_waits_for_the_turn_before_it_and_for_no_other_conversation(
    gateway: RunningGateway,
) -> None:
    """A second message is answered after the first turn ended, and says so; others do not wait."""
    async with connected(gateway) as client:
        first = client.send("hold")
        held = (await anext(first)).accepted
        conversation = held.conversation_id
        assert not held.HasField("queued_behind"), "it waits behind nothing"
        second = client.send("next", conversation)
        accepted = (await anext(second)).accepted
        queued = accepted.turn_id
        assert accepted.queued_behind.turn_id == held.turn_id
        assert not accepted.queued_behind.approval_id
        _, elsewhere = await client.turn("hello")
        assert kinds(elsewhere)[-1] == "turn_finished", "another conversation is not held up"
        assert kinds(await client.events(conversation)) == ["user_message", "user_message"]

        (gateway.state_dir.parent / "go").touch()
        async with asyncio.timeout(50):
            said = [piece async for item in first if (piece := item.delta.text or item.partial.text)]
            async for _ in second:
                pass
        events = await client.events(conversation)
    ends = [event.turn_id for event in events if event.HasField("turn_finished")]
    states = {event.turn_finished.state for event in events if event.HasField("turn_finished")}
    answered = next(
        event.sequence
        for event in events
        if event.turn_id == queued and event.WhichOneof("payload") == "assistant_message"
    )
    ended = next(event.sequence for event in events if event.HasField("turn_finished"))
    assert ends[-1] == queued
    assert answered > ended, "the second turn began before the first had ended"
    assert states == {event_pb2.TURN_STATE_COMPLETED}
    assert configs.count(gateway.state_dir) == 1, "one runner works on a conversation"
    assert "".join(said).count("Held.") <= 1, "and asks the model once for each step"
    assert "transition_dropped" not in gateway.log, "nor has anybody else done the same work"


async def test_a_message_behind_a_question_is_told_which_one(gateway: RunningGateway) -> None:
    """`accepted` names the turn ahead, that it waits for an approval, and for which; a repeat as well."""
    async with connected(gateway) as client:
        asking = (await anext(client.send("ask"))).accepted
        (*_, asked) = await client.until(asking.conversation_id, "approval_requested")
        expected = chat_pb2.QueuedBehind(
            turn_id=asking.turn_id,
            state=event_pb2.TURN_STATE_WAITING_APPROVAL,
            approval_id=asked.approval_requested.approval_id,
        )
        for _ in range(2):
            queued = (await anext(client.send("hello", asking.conversation_id, "the-same"))).accepted
            assert queued.queued_behind == expected
        await client.resolve(expected.approval_id, approve=False)
        await client.until(asking.conversation_id, "turn_finished", asked.sequence + 1)
