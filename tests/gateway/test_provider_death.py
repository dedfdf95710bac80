"""SIGKILL of provider or gateway while a command runs: settled by facts, told, nothing runs twice."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import configs
from tests.support.client import DEADLINE, Client, connected, finished, kinds
from tests.support.gateway import RunningGateway, serving
from tyrum.catalog.v1 import catalog_pb2
from tyrum.chat.v1 import event_pb2

SETTLED_WITHIN = 20.0
"""Seconds from the death of the provider to the event: far less than the command and every deadline."""

RULES = """\
      - id: linger
        decision: allow
        author: the test
        match: {tool: process.run, program: /usr/bin/bash, argv: [-c, "echo $$ >>ran; exec sleep 63"]}
      - id: interrupted
        decision: allow
        author: the test
        match: {tool: process.run, program: /usr/bin/bash, argv: [-c, "echo $$ >>interrupted; exec sleep 64"]}
      - id: short
        decision: allow
        author: the test
        match: {tool: process.run, program: /usr/bin/bash, argv: [-c, "echo short >>short"]}
"""
SCRIPT = """\
version: 1
scenarios:
  - user: linger
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [bash, -c, "echo $$ >>ran; exec sleep 63"]}}
      - expect: {contains: ["the provider that ran it ended"]}
        deltas: ["It was stopped, too."]
  - user: interrupted
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [bash, -c, "echo $$ >>interrupted; exec sleep 64"]}}
      - expect: {contains: ["the provider that ran it ended"]}
        deltas: ["It was stopped."]
  - user: short
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [bash, -c, "echo short >>short"]}}
      - deltas: ["Done."]
  - user: {prefix: ""}
    steps:
      - deltas: ["Said."]
"""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    """A gateway that lets bash run."""
    with serving(tmp_path, configs.write(tmp_path, script=SCRIPT, rules=RULES)) as running:
        yield running


async def eventually(holds: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Poll until something holds."""
    try:
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110 - processes and files have no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(what) from None


def provider_of(gateway: RunningGateway) -> psutil.Process:
    """The provider's process: the gateway's only child."""
    (provider,) = psutil.Process(gateway.pid).children()
    return provider


async def lingering(gateway: RunningGateway, client: Client, text: str, name: str) -> tuple[str, int, int]:
    """Start a turn whose command lingers; return conversation, sequence of its start, pid."""
    stream = client.send(text)
    conversation = (await anext(stream)).accepted.conversation_id
    await stream.aclose()
    started = await client.until(conversation, "tool_call_started")
    noted = gateway.state_dir / "workspaces/default" / name
    await eventually(lambda: noted.exists() and noted.read_text().endswith("\n"), "the command never ran")
    return conversation, started[-1].sequence, int(noted.read_text())


async def shown(client: Client) -> catalog_pb2.Provider:
    """The provider as the catalogue shows it."""
    answer = await client.catalog.GetProvider(
        catalog_pb2.GetProviderRequest(name="local"), metadata=client.metadata, timeout=DEADLINE
    )
    return answer.provider


async def test_a_call_whose_provider_was_killed_is_settled_by_the_journal_of_the_next(
    gateway: RunningGateway,
) -> None:
    """Settled within seconds by what is on record, the command dead, the provider back and in use."""
    async with connected(gateway) as client:
        before = await shown(client)
        conversation, sequence, pid = await lingering(gateway, client, "linger", "ran")
        command, provider = psutil.Process(pid), provider_of(gateway)
        settling = asyncio.create_task(client.until(conversation, "tool_call_finished", sequence))
        await asyncio.sleep(0)
        killed = time.monotonic()
        provider.kill()
        settled = await settling
        took = time.monotonic() - killed
        assert took < SETTLED_WITHIN, f"settled after {took:.2f} s"
        (call,) = finished(settled)
        assert call.state == event_pb2.CALL_STATE_FAILED, call.content
        assert call.process.cause == "provider_gone"
        await client.until(conversation, "turn_finished")
        events = await client.events(conversation)
        assert events[-1].turn_finished.state == event_pb2.TURN_STATE_COMPLETED, "the model saw the outcome"
        await eventually(lambda: not command.is_running(), "the command outlived its provider")

        await until_admitted(client)
        after = await shown(client)
        assert after.instance_id != before.instance_id
        assert provider_of(gateway).pid != provider.pid
        _, events = await client.turn("short", conversation)
        assert finished(events)[0].state == event_pb2.CALL_STATE_SUCCEEDED
        bindings = (
            await client.catalog.ListBindings(
                catalog_pb2.ListBindingsRequest(), metadata=client.metadata, timeout=DEADLINE
            )
        ).bindings
        assert [binding.instance_id for binding in bindings] == [after.instance_id, before.instance_id]
        assert configs.count(gateway.state_dir, "ran") == 1
        assert configs.count(gateway.state_dir, "short") == 1

        done = await asyncio.to_thread(gateway.tyrum, "providers", "restart", "local")
        assert done.returncode == 0, done.stderr
        anew = await shown(client)
        assert done.stdout.startswith(f"local admitted, instance {anew.instance_id}")
        assert anew.instance_id != after.instance_id
        listed = await asyncio.to_thread(
            gateway.tyrum, "audit", "list", "--kind", "provider.restarted", "--output", "jsonl"
        )
        assert '"local"' in listed.stdout


async def until_admitted(client: Client) -> None:
    """Wait until the provider is back."""
    async with asyncio.timeout(50):
        while (await shown(client)).lifecycle != catalog_pb2.PROVIDER_LIFECYCLE_ADMITTED:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_calls_while_the_provider_is_away_never_run_twice_and_it_comes_back_each_time(
    gateway: RunningGateway,
) -> None:
    """Killed again and again, the provider returns; no call in between runs twice or claims to know more."""
    async with connected(gateway) as client:
        conversation, counts = "", Counter[event_pb2.CallState.ValueType]()
        for _ in range(3):
            provider_of(gateway).kill()
            accepted, events = await client.turn("short", conversation)
            conversation = accepted.conversation_id
            counts.update(call.state for call in finished(events))
            await until_admitted(client)
        _, events = await client.turn("short", conversation)
        assert finished(events)[0].state == event_pb2.CALL_STATE_SUCCEEDED
    ran = configs.count(gateway.state_dir, "short") - 1
    succeeded, unknown = counts[event_pb2.CALL_STATE_SUCCEEDED], counts[event_pb2.CALL_STATE_OUTCOME_UNKNOWN]
    assert succeeded <= ran <= succeeded + unknown, counts
    assert counts.total() == succeeded + unknown + counts[event_pb2.CALL_STATE_FAILED]


async def test_a_gateway_killed_while_a_command_runs_settles_it_by_the_journal(
    gateway: RunningGateway,
) -> None:
    """The command dies with gateway and provider; the next gateway reads how it ended and tells the model."""
    async with connected(gateway) as client:
        conversation, sequence, pid = await lingering(gateway, client, "interrupted", "interrupted")
    command, provider = psutil.Process(pid), provider_of(gateway)
    gateway.kill()
    await eventually(lambda: not provider.is_running(), "the provider outlived its gateway")
    await eventually(lambda: not command.is_running(), "the command outlived its provider")
    gateway.start()
    async with connected(gateway) as client:
        await client.until(conversation, "turn_finished", sequence)
        events = await client.events(conversation)
    (call,) = finished(events)
    assert call.state == event_pb2.CALL_STATE_FAILED
    assert call.process.cause == "provider_gone"
    assert len(call.process.stdout.sha256.removeprefix("sha256:")) == 64, "with the facts of its output"
    assert events[-1].turn_finished.state == event_pb2.TURN_STATE_COMPLETED, "the model saw how it ended"
    assert kinds(events).count("tool_call_started") == 1
    assert configs.count(gateway.state_dir, "interrupted") == 1
