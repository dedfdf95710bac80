"""Deadlines are hard: whatever model, tool and provider do, a turn is settled and the next one runs."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterator

import psutil
import pytest

from tests.support import configs, stubborn_gateway
from tests.support.client import DEADLINE, Client, connected, finished, kinds
from tests.support.gateway import RunningGateway
from tyrum.approval.v1 import approval_pb2
from tyrum.chat.v1 import chat_pb2, event_pb2

STEP, TURN = 2, 8
"""Seconds, as configured here."""

SCRIPT = """\
version: 1
scenarios:
  - user: endless
    steps:
      - calls: [{tool: process.run, arguments: {argv: ["true"]}}]
      - calls: [{tool: process.run, arguments: {argv: ["true"]}}]
      - calls: [{tool: process.run, arguments: {argv: ["true"]}}]
      - calls: [{tool: process.run, arguments: {argv: ["true"]}}]
  - user: stubborn tool
    steps:
      - calls: [{tool: process.run, arguments: {argv: ["true", stubborn-tool]}}]
  - user: hang
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [linger, hang]}}
          - {tool: process.run, arguments: {argv: [tee, -a, asked], stdin: "x\\n"}}
  - user: {prefix: ""}
    steps:
      - deltas: ["Said."]
"""
RULES = """\
      - id: "true"
        decision: allow
        author: the test
        match: {tool: process.run, program: /usr/bin/true}
      - id: linger
        decision: allow
        author: the test
        may_start_others: true
        match: {tool: process.run, program: PROGRAMS/linger, replaceable: true}
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One gateway for this file, with short deadlines and parts that do not keep them."""
    directory = tmp_path_factory.mktemp("deadlines")
    programs = directory / "programs"
    programs.mkdir()
    (programs / "linger").write_text('#!/bin/sh\necho $$ >>"$1"\nexec sleep 66\n', encoding="utf-8")
    (programs / "linger").chmod(0o755)
    config = configs.write(
        directory,
        script=SCRIPT,
        rules=RULES.replace("PROGRAMS", str(programs)),
        profile=f"path: [{programs}, /usr/bin, /bin]",
        more=f"limits: {{step_time: {STEP}s, turn_time: {TURN}s, steps_per_turn: 3, attempts_per_step: 1}}",
    )
    running = RunningGateway(directory / "state", config)
    running.launcher = (sys.executable, stubborn_gateway.__file__)
    try:
        running.start()
        yield running
    finally:
        running.kill()


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[Client]:
    """The operator."""
    async with connected(gateway) as connection:
        yield connection


def ending(events: list[event_pb2.Event]) -> tuple[event_pb2.TurnState.ValueType, str]:
    """How the turn ended, and why."""
    return events[-1].turn_finished.state, events[-1].turn_finished.reason


def let_go(gateway: RunningGateway, text: str) -> bool:
    """Tell whether a stubborn model has ended."""
    return (gateway.state_dir.parent / text).exists()


async def goes_on(client: Client, conversation: str) -> None:
    """Check that the conversation answers."""
    _, events = await client.turn("still there?", conversation)
    assert ending(events) == (event_pb2.TURN_STATE_COMPLETED, "")


async def test_a_model_that_ignores_its_deadline_does_not_hold_the_step(
    gateway: RunningGateway, client: Client
) -> None:
    """The step fails at its deadline while the model still goes on, and the next message is answered."""
    accepted, events = await client.turn("stubborn model 1")
    assert not let_go(gateway, "stubborn model 1")
    assert ending(events) == (event_pb2.TURN_STATE_FAILED, f"the model did not finish within {STEP} s")
    await goes_on(client, accepted.conversation_id)


async def test_a_turn_takes_so_many_steps_and_no_more(client: Client) -> None:
    """A model that never stops calling tools is stopped after the configured number of steps."""
    accepted, events = await client.turn("endless")
    assert ending(events) == (event_pb2.TURN_STATE_FAILED, "the turn took its 3 steps")
    assert len(finished(events)) == 3
    await goes_on(client, accepted.conversation_id)


async def test_cancelling_settles_a_tool_that_does_not_let_go(client: Client) -> None:
    """The turn and its call are settled in one commit at once, and the conversation goes on."""
    stream = client.send("stubborn tool")
    accepted = (await anext(stream)).accepted
    await stream.aclose()
    await client.until(accepted.conversation_id, "tool_call_started")
    cancelled = await client.chat.CancelTurn(
        chat_pb2.CancelTurnRequest(turn_id=accepted.turn_id), metadata=client.metadata, timeout=DEADLINE
    )
    assert cancelled.turn.state == event_pb2.TURN_STATE_CANCELLED
    events = await client.events(accepted.conversation_id)
    assert [call.state for call in finished(events)] == [event_pb2.CALL_STATE_CANCELLED]
    assert kinds(events)[-2:] == ["tool_call_finished", "turn_finished"]
    assert events[-2].created_at == events[-1].created_at, "one commit"
    await goes_on(client, accepted.conversation_id)


async def test_a_provider_that_hangs_does_not_hold_a_turn(gateway: RunningGateway, client: Client) -> None:
    """At the turn's deadline call, open question and turn are settled in one commit; the command ends too."""
    stream = client.send("hang")
    accepted = (await anext(stream)).accepted
    await stream.aclose()
    noted = gateway.state_dir / "workspaces/default/hang"
    async with asyncio.timeout(DEADLINE):
        while not (noted.exists() and noted.read_text(encoding="utf-8").endswith("\n")):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    (command,) = (psutil.Process(int(line)) for line in noted.read_text(encoding="utf-8").split())
    (provider,) = psutil.Process(gateway.pid).children()
    provider.suspend()
    try:
        await client.until(accepted.conversation_id, "turn_finished")
        events = await client.events(accepted.conversation_id)
        assert ending(events) == (
            event_pb2.TURN_STATE_FAILED,
            f"the turn was worked on for more than {TURN} s",
        )
        assert [call.state for call in finished(events)] == [
            event_pb2.CALL_STATE_OUTCOME_UNKNOWN,
            event_pb2.CALL_STATE_FAILED,
        ]
        assert len({event.created_at.ToNanoseconds() for event in events[-4:]}) == 1, "one commit"
        assert kinds(events)[-4:] == [
            "tool_call_finished",
            "approval_resolved",
            "tool_call_finished",
            "turn_finished",
        ]
        pending = await client.approvals.ListApprovals(
            approval_pb2.ListApprovalsRequest(conversation_id=accepted.conversation_id),
            metadata=client.metadata,
            timeout=DEADLINE,
        )
        assert not pending.approvals
        await goes_on(client, accepted.conversation_id)
        async with asyncio.timeout(DEADLINE):
            while "cancel_failed" not in gateway.log:  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.05)
    finally:
        provider.resume()
    async with asyncio.timeout(DEADLINE):
        while command.is_running():  # noqa: ASYNC110 - a process has no event
            await asyncio.sleep(0.05)


async def test_work_that_never_lets_go_does_not_hold_the_end(gateway: RunningGateway) -> None:
    """SIGTERM, and a second one to hurry, end a gateway with 0 while its model still ignores everything."""
    async with connected(gateway) as client:
        stream = client.send("stubborn model 2")
        conversation = (await anext(stream)).accepted.conversation_id
        await stream.aclose()
        await client.until(conversation, "turn_finished")
    process = gateway.process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(DEADLINE):
        while '"draining"' not in gateway.log:  # noqa: ASYNC110 - in a file
            await asyncio.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, DEADLINE) == 0
    assert not let_go(gateway, "stubborn model 2")
    gateway.start()
