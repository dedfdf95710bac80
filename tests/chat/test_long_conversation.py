"""A conversation that outgrew the prompt's window: what lies behind it is summarised, never lost."""

from pathlib import Path

from tests.support import configs
from tests.support.client import connected, kinds
from tests.support.gateway import serving
from tyrum.chat.v1 import event_pb2
from tyrum_gateway.domain.prompt import WINDOW

SCRIPT = """\
version: 1
scenarios:
  - user: my name is Ada
    steps:
      - deltas: ["Noted."]
  - user: "before the window is full"
    steps:
      - expect: {contains: ["my name is Ada"], absent: ["Turn 1\\n"]}
        deltas: ["Seen."]
  - user: "after"
    steps:
      - expect: {contains: ["Turn 1\\nuser: my name is Ada\\nassistant: Noted."]}
        deltas: ["Remembered."]
  - user: {prefix: ""}
    steps:
      - deltas: ["Said."]
"""


async def test_what_the_window_lost_stands_in_the_conversation_state(tmp_path: Path) -> None:
    """Beyond the window the model is shown the checkpoint, after SIGKILL too; the transcript keeps all."""
    with serving(tmp_path, configs.write(tmp_path, script=SCRIPT)) as gateway:
        async with connected(gateway) as client:
            accepted, events = await client.turn("my name is Ada")
            conversation, per_turn = accepted.conversation_id, len(events) + 1
            _, events = await client.turn("before the window is full", conversation)
            assert events[-1].turn_finished.state == event_pb2.TURN_STATE_COMPLETED
            for number in range(WINDOW // per_turn):
                await client.turn(f"message {number}", conversation)
        gateway.restart()
        async with connected(gateway) as client:
            _, events = await client.turn("after", conversation)
            finished = events[-1].turn_finished
            assert finished.state == event_pb2.TURN_STATE_COMPLETED, finished.reason
            transcript = await client.events(conversation)
        assert [event.sequence for event in transcript] == list(range(1, len(transcript) + 1))
        assert transcript[0].user_message.text == "my name is Ada"
        assert kinds(transcript).count("turn_finished") == WINDOW // per_turn + 3
