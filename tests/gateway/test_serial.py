"""Turns of one conversation run one after the other, those of different conversations side by side."""

import asyncio
from pathlib import Path

from tests.support import configs
from tests.support.client import connected, kinds
from tests.support.gateway import serving
from tyrum.chat.v1 import event_pb2

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
  - user: {prefix: ""}
    steps:
      - deltas: ["Said."]
"""


async def test_a_message_waits_for_the_turn_before_it_and_for_no_other_conversation(tmp_path: Path) -> None:
    """A second message is answered after the first turn ended; another conversation does not wait."""
    config = configs.write(tmp_path, script=SCRIPT)
    with serving(tmp_path, config) as gateway:
        async with connected(gateway) as client:
            first = client.send("hold")
            conversation = (await anext(first)).accepted.conversation_id
            second = client.send("next", conversation)
            queued = (await anext(second)).accepted.turn_id
            _, elsewhere = await client.turn("hello")
            assert kinds(elsewhere)[-1] == "turn_finished", "another conversation is not held up"
            assert kinds(await client.events(conversation)) == ["user_message", "user_message"]

            (tmp_path / "go").touch()
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
