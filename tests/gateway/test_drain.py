"""A stop by signal: what is in work comes to a durable rest, nothing begins, and the next gateway goes on."""

import asyncio
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support import configs
from tests.support.client import DEADLINE, Client, connected, finished
from tests.support.gateway import RunningGateway
from tyrum.chat.v1 import event_pb2

SCRIPT = """\
version: 1
scenarios:
  - user: hold
    steps:
      - {barrier: go, deltas: ["Held."]}
  - user: stay
    steps:
      - {barrier: stay, deltas: ["Stayed."]}
  - user: linger
    steps:
      - calls: [{tool: process.run, arguments: {argv: [linger]}}]
      - deltas: ["Lingered."]
  - user: ask
    steps:
      - calls: [{tool: process.run, arguments: {argv: [tee, -a, asked], stdin: "x\\n"}}]
      - deltas: ["Answered."]
  - user: {prefix: ""}
    steps:
      - deltas: ["Said."]
"""
RULE = """\
      - id: linger
        decision: allow
        author: the test
        may_start_others: true
        match: {{tool: process.run, program: {directory}/linger, replaceable: true}}
"""
DRAINING = (
    "import signal, sys\n"
    "signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever started the tests\n"
    "from tyrum_gateway.cli.main import main\n"
    "import tyrum_gateway.bootstrap.serve\n"
    "sys.modules['tyrum_gateway.bootstrap.serve'].DRAIN_SECONDS = float(sys.argv[1])\n"
    "sys.argv = ['tyrum', 'serve', *sys.argv[2:]]\n"
    "main()\n"
)
"""The shipped gateway with a drain of another length."""
PATIENT = str(2 * DEADLINE)
"""Seconds that no test waits: what ends earlier was hurried."""


def gateway_in(directory: Path) -> RunningGateway:
    """A gateway that is not started yet."""
    program = directory / "linger"
    program.write_text("#!/bin/sh\necho x >>lingered\nexec sleep 67\n", encoding="utf-8")
    program.chmod(0o755)
    profile = f"path: [{directory}, /usr/bin, /bin]"
    config = configs.write(directory, script=SCRIPT, rules=RULE.format(directory=directory), profile=profile)
    return RunningGateway(directory / "state", config)


async def eventually(holds: Callable[[], bool]) -> None:
    """Poll until something holds."""
    async with asyncio.timeout(DEADLINE):
        while not holds():  # noqa: ASYNC110 - files and processes have no event
            await asyncio.sleep(0.02)


async def begun(client: Client, text: str, conversation: str = "") -> tuple[str, str]:
    """Send a message and disconnect; return conversation and turn."""
    stream = client.send(text, conversation)
    accepted = (await anext(stream)).accepted
    await stream.aclose()
    return accepted.conversation_id, accepted.turn_id


def states(gateway: RunningGateway) -> dict[str, str]:
    """State of each turn, by turn, as a gateway that is gone has left it."""
    connection = sqlite3.connect(gateway.state_dir / "tyrum.sqlite3")
    try:
        return dict(connection.execute("SELECT turn_id, state FROM turns"))
    finally:
        connection.close()


def attempting(gateway: RunningGateway, turn: str) -> bool:
    """Tell whether a turn has begun."""
    connection = sqlite3.connect(f"file:{gateway.state_dir}/tyrum.sqlite3?mode=ro", uri=True)
    try:
        (row,) = connection.execute("SELECT state FROM turns WHERE turn_id = ?", (turn,))
        return str(row[0]) == "running"
    finally:
        connection.close()


async def ended(gateway: RunningGateway) -> int:
    """Wait for the end of the process; return its exit code."""
    process = gateway.process
    assert process is not None
    await eventually(lambda: process.poll() is not None)
    return int(process.returncode)


async def test_sigterm_ends_what_is_in_work_and_leaves_the_rest_to_the_next_gateway(tmp_path: Path) -> None:
    """A held turn ends, a queued one does not begin, a second signal hurries; the next gateway ends all.

    The end of a terminal, which can send more than one signal, hurries nothing, and stops as SIGTERM does.
    """
    gateway = gateway_in(tmp_path)
    gateway.launcher = (sys.executable, "-c", DRAINING, PATIENT)
    gateway.start()
    try:
        async with connected(gateway) as client:
            held, hold = await begun(client, "hold")
            _, queued = await begun(client, "next", held)
            stays, stay = await begun(client, "stay")
            lingers, linger = await begun(client, "linger")
            asks, ask = await begun(client, "ask")
            asked = (await client.until(asks, "approval_requested"))[-1].approval_requested
            await eventually(lambda: configs.count(gateway.state_dir, "lingered") == 1)
            await eventually(lambda: attempting(gateway, hold) and attempting(gateway, stay))
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGTERM)
        await eventually(lambda: '"draining"' in gateway.log)
        gateway.process.send_signal(signal.SIGHUP)
        (tmp_path / "go").touch()
        await eventually(lambda: states(gateway)[hold] == "completed")
        assert gateway.process.poll() is None, "others are still in work"
        gateway.process.send_signal(signal.SIGINT)
        assert await ended(gateway) == 0
        left = {hold: "completed", queued: "queued", stay: "running", linger: "running"}
        assert states(gateway) == left | {ask: "waiting_approval"}

        gateway.start()
        (tmp_path / "stay").touch()
        async with connected(gateway) as client:
            await client.resolve(asked.approval_id, approve=True)
            for conversation in (stays, lingers, asks):
                await client.until(conversation, "turn_finished")
            await eventually(lambda: set(states(gateway).values()) == {"completed"})
            (call,) = finished(await client.events(lingers))
        assert (call.state, call.process.cause) == (event_pb2.CALL_STATE_FAILED, "provider_gone")
        assert configs.count(gateway.state_dir, "lingered") == 1
        assert configs.count(gateway.state_dir, "asked") == 1
        gateway.process.send_signal(signal.SIGHUP)
        assert await ended(gateway) == 0
        assert not (gateway.state_dir / "gateway.json").exists()
    finally:
        gateway.kill()


async def test_a_turn_that_does_not_rest_does_not_hold_the_end(tmp_path: Path) -> None:
    """One SIGTERM suffices: when the time for draining is over the gateway exits 0 and the turn is kept."""
    gateway = gateway_in(tmp_path)
    gateway.launcher = (sys.executable, "-c", DRAINING, "1")
    gateway.start()
    try:
        async with connected(gateway) as client:
            _, stay = await begun(client, "stay")
            await eventually(lambda: attempting(gateway, stay))
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGTERM)
        assert await ended(gateway) == 0
        assert states(gateway) == {stay: "running"}
    finally:
        gateway.kill()
