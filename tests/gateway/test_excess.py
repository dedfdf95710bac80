"""What a model says too much of: the turn ends, and conversation and inbox stay readable."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support import configs
from tests.support.client import DEADLINE, Client, connected, kinds
from tests.support.gateway import RunningGateway, serving
from tyrum.approval.v1 import approval_pb2
from tyrum.chat.v1 import chat_pb2, event_pb2

KIB = 1024
HIDDEN = '"' + "\\x01" * 60 * KIB + '"'
"""An argument that takes many times its size where it is shown."""
CALLS = "\n".join("          - {tool: process.run, arguments: {argv: [tee, -a, asked]}}" for _ in range(65))
SCRIPT = f"""\
version: 1
scenarios:
  - user: endless
    steps:
      - deltas: ["", "{"A" * KIB}"]
        repeat: 5000
  - user: calls
    steps:
      - calls:
{CALLS}
  - user: arguments
    steps:
      - calls:
          - {{tool: process.run, arguments: "{"B" * KIB * KIB}"}}
  - user: long
    steps:
      - deltas: ["{"C" * 900 * KIB}"]
  - user: ask
    steps:
      - calls:
          - tool: process.run
            arguments: {{argv: [tee, {HIDDEN}, {HIDDEN}]}}
  - user: {{prefix: ""}}
    steps:
      - deltas: ["Said."]
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One gateway for this file; no rule allows anything."""
    directory = tmp_path_factory.mktemp("excess")
    config = configs.write(directory, script=SCRIPT, rules="      []")
    with serving(directory, config) as running:
        yield running


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[Client]:
    """A connection as the operator."""
    async with connected(gateway) as connection:
        yield connection


async def test_a_step_that_never_ends_is_cut_off_and_the_conversation_stays_readable(client: Client) -> None:
    """A model that goes on and on fails its turn at 1 MiB; what it said until then can be read."""
    accepted, _ = await client.turn("endless")
    events = await client.events(accepted.conversation_id)
    assert kinds(events) == ["user_message", "assistant_message", "turn_finished"]
    said = events[1].assistant_message
    assert said.incomplete
    assert len(said.text) == KIB * KIB
    assert events[2].turn_finished.state == event_pb2.TURN_STATE_FAILED
    assert "more than 1048576 bytes" in events[2].turn_finished.reason
    _, again = await client.turn("hello", accepted.conversation_id)
    assert again[-1].turn_finished.state == event_pb2.TURN_STATE_COMPLETED


@pytest.mark.parametrize("text", ["calls", "arguments"])
async def test_a_step_with_too_many_or_too_large_calls_is_not_taken(client: Client, text: str) -> None:
    """No call of such a step is recorded, decided or asked about."""
    _, events = await client.turn(text)
    assert kinds(events)[-1] == "turn_finished"
    assert "tool_call_proposed" not in kinds(events)
    assert events[-1].turn_finished.state == event_pb2.TURN_STATE_FAILED
    assert "at most" in events[-1].turn_finished.reason


async def test_a_page_of_large_events_ends_early_and_the_next_one_goes_on(client: Client) -> None:
    """A transcript of more than a message is read to its end, whatever page size is asked for."""
    accepted, _ = await client.turn("long")
    for _ in range(5):
        await client.turn("long", accepted.conversation_id)
    request = chat_pb2.ListEventsRequest(conversation_id=accepted.conversation_id, page_size=500)
    page = await client.chat.ListEvents(request, metadata=client.metadata, timeout=DEADLINE)
    assert page.more
    assert 0 < len(page.events) < 18
    events = await client.events(accepted.conversation_id)
    assert [event.sequence for event in events] == list(range(1, 19))


async def test_large_questions_leave_the_inbox_readable(client: Client) -> None:
    """Questions of more than a message together are listed page by page, each once."""
    asked = []
    for _ in range(3):
        async for item in client.send("ask"):
            if item.event.HasField("approval_requested"):
                asked.append(item.event.approval_requested.approval_id)
                break
    assert len(asked) == 3
    listed, token, pages = [], "", 0
    while token or not pages:
        request = approval_pb2.ListApprovalsRequest(page_size=200, page_token=token)
        page = await client.approvals.ListApprovals(request, metadata=client.metadata, timeout=DEADLINE)
        listed += [approval.approval_id for approval in page.approvals]
        token, pages = page.next_page_token, pages + 1
    assert pages > 1
    assert listed == asked
