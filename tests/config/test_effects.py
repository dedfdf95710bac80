"""Keys of the file change what a gateway does: each is set to another value than its default, and seen."""

import asyncio
import json
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import configs
from tests.support.client import connected, finished, kinds
from tests.support.gateway import RunningGateway, serving
from tyrum.chat.v1 import event_pb2

SECRET = "correct-horse-battery"

LIMITS = (
    "limits: {steps_per_turn: 2, attempts_per_step: 2, step_time: 1s, turn_time: 8s, concurrent_turns: 1}"
)
LIMITS_SCRIPT = """\
version: 1
scenarios:
  - user: hang
    steps:
      - barrier: never
  - user: again
    steps:
      - calls: [{tool: process.run, arguments: {argv: ["true"]}}]
      - calls: [{tool: process.run, arguments: {argv: ["true"]}}]
      - deltas: ["never reached"]
  - user: long
    steps:
      - calls: [{tool: process.run, arguments: {argv: [sleep, "60"]}}]
  - user: {prefix: ""}
    steps:
      - deltas: ["Said."]
"""
LIMITS_RULES = """\
      - id: any
        decision: allow
        author: the test
        match: {tool: process.run, program: /usr/bin/true}
      - id: sleep
        decision: allow
        author: the test
        match: {tool: process.run, program: /usr/bin/sleep}
"""

RUNS_SCRIPT = """\
version: 1
scenarios:
  - user: instructions
    steps:
      - expect: {contains: ["answer in rhymes"]}
        deltas: ["Done."]
  - user: sleep
    steps:
      - calls: [{tool: process.run, arguments: {argv: [sleep, "60"]}}]
      - deltas: ["Done."]
  - user: flood
    steps:
      - calls: [{tool: process.run, arguments: {argv: ["yes"]}}]
      - deltas: ["Done."]
  - user: own
    steps:
      - calls: [{tool: process.run, arguments: {argv: [own-program], secrets: [KEY]}}]
      - deltas: ["Done."]
"""
RUNS_RULES = """\
      - id: any
        decision: allow
        author: the test
        match: {tool: process.run, program: /usr/bin/sleep, argv: [], rest: true}
      - id: flood
        decision: allow
        author: the test
        match: {tool: process.run, program: /usr/bin/yes}
      - id: own
        decision: allow
        author: the test
        may_start_others: true
        match: {tool: process.run, program: OWN, secrets: [KEY], replaceable: true}
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A gateway and the directory it was made in."""

    gateway: RunningGateway
    directory: Path


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A gateway whose limits are all tight."""
    directory = tmp_path_factory.mktemp("limited")
    config = configs.write(directory, script=LIMITS_SCRIPT, rules=LIMITS_RULES, more=LIMITS)
    with serving(directory, config) as gateway:
        yield Place(gateway, directory)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A gateway whose agent and profile have every key set."""
    directory = tmp_path_factory.mktemp("running")
    programs = directory / "programs"
    programs.mkdir()
    own = programs / "own-program"
    own.write_text('#!/bin/sh\npwd\nprintf "%s" "$KEY" | wc -c\nprintf "%s\\n" "$KEY"\n')
    own.chmod(0o755)
    config = configs.write(
        directory,
        script=RUNS_SCRIPT,
        rules=RUNS_RULES.replace("OWN", str(own)),
        profile=f"wall_time: 2s, output: 8KiB, kill_grace: 100ms, path: [{programs}, /usr/bin]",
        more='listen: {tcp: "127.0.0.1:0"}\nsecrets: {KEY: "${env:PLANTED_KEY}"}\n',
    )
    text = config.read_text(encoding="utf-8").replace(
        "    workspace: workspaces/default\n",
        "    workspace: elsewhere/here\n    instructions_file: rhymes.md\n    secrets: [KEY]\n",
    )
    config.write_text(text, encoding="utf-8")
    (directory / "rhymes.md").write_text("answer in rhymes\n", encoding="utf-8")
    with serving(directory, config, {"PLANTED_KEY": SECRET}) as gateway:
        yield Place(gateway, directory)


def end(events: list[event_pb2.Event]) -> str:
    """Why a turn ended."""
    return events[-1].turn_finished.reason


async def test_steps_attempts_and_their_time_are_those_of_the_file(limited: Place) -> None:
    """A model that hangs gets its second and its two attempts, and a turn its two steps."""
    async with connected(limited.gateway) as client:
        _, events = await client.turn("hang")
        assert kinds(events).count("attempt_abandoned") == 2
        assert "within 1 s" in end(events)
        _, events = await client.turn("again")
        assert [call.process.exit_code for call in finished(events)] == [0, 0]
        assert end(events) == "the turn took its 2 steps"


async def test_a_turn_is_worked_on_for_the_time_of_the_file(limited: Place) -> None:
    """A command that would take a minute ends with its turn, after eight seconds."""
    async with connected(limited.gateway) as client:
        _, events = await client.turn("long")
        assert "more than 8 s" in end(events)
        (call,) = finished(events)
        assert call.state == event_pb2.CALL_STATE_OUTCOME_UNKNOWN


async def test_as_many_turns_run_as_the_file_says(limited: Place) -> None:
    """With one turn at a time a second conversation is answered after the first, which hangs a while."""
    async with connected(limited.gateway) as client:
        hanging = client.send("hang")
        await anext(hanging)
        _, second = await client.turn("hello")
        first = [item.event async for item in hanging if item.HasField("event")]
        assert first[-1].created_at.ToMicroseconds() < second[-1].created_at.ToMicroseconds()


async def test_the_agent_is_that_of_the_file(running: Place) -> None:
    """Instructions begin the prompt; the workspace, the program directories and the secret are the file's."""
    async with connected(running.gateway) as client:
        _, events = await client.turn("instructions")
        assert events[-1].turn_finished.state == event_pb2.TURN_STATE_COMPLETED
        _, events = await client.turn("own")
        (call,) = finished(events)
        workspace = running.gateway.state_dir / "elsewhere" / "here"
        assert call.content.splitlines()[-3:] == [str(workspace), str(len(SECRET)), "***"]
        assert stat.S_IMODE(workspace.stat().st_mode) == 0o700


async def test_who_answers_for_a_rule_is_recorded(running: Place) -> None:
    """What a rule lets through is its author's standing approval: transcript and audit say whose."""
    async with connected(running.gateway) as client:
        _, events = await client.turn("own")
    (decided,) = [event.tool_call_decided for event in events if event.HasField("tool_call_decided")]
    assert (decided.rule_id, decided.author) == ("own", "the test")
    with sqlite3.connect(running.gateway.state_dir / "tyrum.sqlite3") as database:
        audited = database.execute(
            "SELECT details FROM audit WHERE kind = 'call.decided' AND subject = ?", (decided.call_id,)
        ).fetchall()
    database.close()
    assert [json.loads(details)["author"] for (details,) in audited] == ["the test"]


@pytest.mark.parametrize(("text", "cause"), [("sleep", "wall_time"), ("flood", "output_limit")])
async def test_a_command_has_the_limits_of_the_profile(running: Place, text: str, cause: str) -> None:
    """A command that sleeps for a minute is ended after two seconds, one that floods at its eight KiB."""
    async with connected(running.gateway) as client:
        _, events = await client.turn(text)
        (call,) = finished(events)
        assert call.process.cause == cause


async def test_the_address_of_the_file_is_served(running: Place) -> None:
    """Besides the socket the gateway listens on the loopback address, on a port it was given."""
    addresses = json.loads((running.gateway.state_dir / "gateway.json").read_text(encoding="utf-8"))[
        "addresses"
    ]
    assert len(addresses) == 2
    host, _, port = addresses[1].rpartition(":")
    assert host == "127.0.0.1"
    _, writer = await asyncio.open_connection(host, int(port))
    writer.close()
    await writer.wait_closed()


async def test_a_claim_that_the_file_requires_withholds_the_tool(tmp_path: Path) -> None:
    """A profile that requires what the provider does not prove leaves the agent without process tools."""
    config = configs.write(tmp_path, profile="required_claims: [net.none]")
    with serving(tmp_path, config) as gateway:
        async with connected(gateway) as client:
            _, events = await client.turn("count")
        said = (
            "profile `default` requires net.none; provider `local` does not prove it: "
            "process.run is not offered"
        )
        assert f"  warning: {said}\n" in gateway.log
        assert "profile_unusable" in gateway.log
        for command in (("providers", "list"), ("providers", "explain", "local"), ("doctor",)):
            assert said in gateway.tyrum(*command).stdout
    assert "tool_call_started" not in kinds(events)
    assert configs.count(gateway.state_dir) == 0


async def test_a_provider_that_no_agent_selects_serves_nobody(tmp_path: Path) -> None:
    """The only provider, admitted and with a profile of its own, is bound to an agent by the file alone."""
    config = configs.write(tmp_path)
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("    profiles: {isolation: default}\n", ""), encoding="utf-8")
    with serving(tmp_path, config) as gateway:
        listed = gateway.tyrum("providers", "list", "--output", "json")
        assert [item["lifecycle"] for item in json.loads(listed.stdout)] == ["PROVIDER_LIFECYCLE_ADMITTED"]
        async with connected(gateway) as client:
            _, events = await client.turn("count")
    assert "tool_call_started" not in kinds(events)
    assert configs.count(gateway.state_dir) == 0
