"""Rules of the file in force: the deployment's beside the agent's, by provenance, and for shell text."""

import json
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support import configs
from tests.support.client import Client, connected, finished
from tests.support.gateway import RunningGateway, serving
from tyrum.chat.v1 import event_pb2

SCRIPT = """\
version: 1
scenarios:
  - user: list
    steps:
      - calls: [{tool: process.run, arguments: {shell: "seq 3 | wc -l && seq 5 5"}}]
      - deltas: ["Counted."]
  - user: plain
    steps:
      - calls: [{tool: process.run, arguments: {shell: "seq 1 2"}}]
      - deltas: ["Counted."]
  - user: denied
    steps:
      - calls: [{tool: process.run, arguments: {shell: "seq 1 && rm x"}}]
      - deltas: ["Understood."]
  - user: afterwards
    steps:
      - calls: [{tool: process.run, arguments: {argv: [cat, /dev/null]}}]
      - calls: [{tool: process.run, arguments: {argv: [cat, /dev/null]}}]
      - deltas: ["Read twice."]
  - user: once
    steps:
      - calls: [{tool: process.run, arguments: {argv: [cat, /dev/null]}}]
      - deltas: ["Read."]
"""
RULES = """\
      - {id: seq, decision: allow, author: ops, match: {tool: process.run, program: /usr/bin/seq}}
      - {id: wc, decision: allow, author: ops, match: {tool: process.run, program: /usr/bin/wc, stdin: true}}
      - {id: cat, decision: allow, author: ops, match: {tool: process.run, program: /usr/bin/cat}}
      - id: rm
        decision: allow
        author: ops
        may_start_others: true
        match: {tool: process.run, program: /usr/bin/rm}
  deployment:
    rules:
      - {id: no-rm, decision: deny, reason: nothing is removed, match: {program: /usr/bin/rm}}
      - id: once-read
        decision: require_approval
        match: {agent: default, provenance: untrusted, program: /usr/bin/cat}
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One gateway for this file."""
    directory = tmp_path_factory.mktemp("in-force")
    with serving(directory, configs.write(directory, script=SCRIPT, rules=RULES)) as running:
        yield running


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[Client]:
    """The operator."""
    async with connected(gateway) as connection:
        yield connection


def decided(events: list[event_pb2.Event]) -> list[event_pb2.ToolCallDecided]:
    """The decisions among events."""
    return [event.tool_call_decided for event in events if event.HasField("tool_call_decided")]


async def test_a_list_of_allowed_commands_runs_unasked(client: Client) -> None:
    """Each command rests on its rule, the record names both and the programs, and bash runs the text."""
    _, events = await client.turn("list")
    (decision,) = decided(events)
    assert (decision.decision, decision.rule_id) == (event_pb2.DECISION_ALLOW, "seq,wc")
    assert [command["argv"][0] for command in json.loads(decision.target)["commands"]] == ["seq", "wc", "seq"]
    (call,) = finished(events)
    assert call.process.exit_code == 0
    assert "3\n5" in call.content


async def test_one_literal_command_runs_without_a_shell(client: Client) -> None:
    """As text it is decided on, and recorded, as program and arguments."""
    _, events = await client.turn("plain")
    target = json.loads(decided(events)[0].target)
    assert (target["program"], target["argv"], target["agent"]) == (
        "/usr/bin/seq",
        ["seq", "1", "2"],
        "default",
    )
    assert finished(events)[0].process.exit_code == 0


async def test_the_deployment_denies_what_the_agent_allows(client: Client) -> None:
    """The stricter of both bundles wins, inside shell text too, and nobody is asked."""
    _, events = await client.turn("denied")
    (decision,) = decided(events)
    assert (decision.decision, decision.rule_id) == (event_pb2.DECISION_DENY, "no-rm")
    assert finished(events)[0].state == event_pb2.CALL_STATE_DENIED


async def test_a_call_after_the_output_of_a_tool_is_escalated(client: Client) -> None:
    """The same call is allowed at first, and asks once the model has read what a tool returned."""
    stream = client.send("afterwards")
    accepted = (await anext(stream)).accepted
    await stream.aclose()
    conversation = accepted.conversation_id
    asked = (await client.until(conversation, "approval_requested", accepted.sequence))[-1]
    await client.resolve(asked.approval_requested.approval_id, approve=True)
    await client.until(conversation, "turn_finished", asked.sequence)
    events = await client.events(conversation)
    assert [decision.rule_id for decision in decided(events)] == ["cat", "once-read"]
    assert [call.process.exit_code for call in finished(events)] == [0, 0]


async def test_output_of_an_earlier_turn_escalates_too(client: Client) -> None:
    """What a tool returned stands in the prompt of the next turn as well: its first call asks already."""
    accepted, events = await client.turn("once")
    assert [decision.rule_id for decision in decided(events)] == ["cat"]
    again = client.send("once", conversation_id=accepted.conversation_id)
    second = (await anext(again)).accepted
    await again.aclose()
    asked = (await client.until(second.conversation_id, "approval_requested", second.sequence))[-1]
    decision = decided(await client.events(second.conversation_id, second.sequence))[0]
    assert (decision.rule_id, json.loads(decision.target)["provenance"]) == ("once-read", "untrusted")
    await client.resolve(asked.approval_requested.approval_id, approve=True)
    await client.until(second.conversation_id, "turn_finished", asked.sequence)
    (call,) = finished(await client.events(second.conversation_id, second.sequence))
    assert call.process.exit_code == 0
