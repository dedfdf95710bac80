"""A flood of output: exact totals and digests, bounded evidence, bounded spool, bounded memory everywhere."""

import asyncio
import hashlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.support import configs
from tests.support.client import Client, connected, finished
from tests.support.gateway import RunningGateway, serving
from tyrum.chat.v1 import event_pb2

GIB = 1 << 30
KIB = 1 << 10
MIB = 1 << 20
GROWTH = 32 * MIB
"""What a process may hold more than when it was idle."""
KEPT = 128 * KIB
"""Of each stream at its beginning and at its end."""

BLOCK = bytes(range(256)) * 4096
"""1 MiB that is repeated; each stream begins and ends with a text of its own."""

PROGRAM = f"""\
import os, sys

def pour(descriptor, total, name):
    block = bytes(range(256)) * 4096
    head, tail = (name + "-begins").encode(), (name + "-ends").encode()
    def all_of(data):
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view):]
    all_of(head)
    left = total - len(head) - len(tail)
    while left:
        piece = block[:min(left, len(block))]
        all_of(piece)
        left -= len(piece)
    all_of(tail)

if os.fork():
    pour(1, {GIB - 64 * MIB}, "stdout")
    os.wait()
else:
    pour(2, {64 * MIB}, "stderr")
"""
TOTALS = {"stdout": GIB - 64 * MIB, "stderr": 64 * MIB}

PYTHON = Path(sys.executable).resolve()
PLACES = tuple(dict.fromkeys((str(PYTHON.parent), "/usr/bin", "/bin")))
"""Each once: Debian's own Python is in /usr/bin."""
SPOOL = 8 * MIB
"""Default cap of the provider for each stream."""
SLACK = MIB
"""For records and journals beside the spools."""

SCRIPT = """\
version: 1
scenarios:
  - user: warm
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [head, -c, "65536", /dev/zero]}}
      - deltas: ["Warm."]
  - user: flood
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [PYTHON, flood.py]}}
      - expect: {contains: ["stdout-begins", "stdout-ends", "stderr-begins", "stderr-ends"]}
        deltas: ["Wet."]
  - user: {prefix: ""}
    steps:
      - deltas: ["Said."]
"""
RULES = """\
      - id: pour
        decision: allow
        author: the test
        match: {tool: process.run, program: PROGRAM, argv: [flood.py], replaceable: true}
      - id: warm
        decision: allow
        author: the test
        match: {tool: process.run, program: /usr/bin/head}
"""


def expected(name: str) -> tuple[bytes, bytes, str]:
    """First and last bytes of a stream, and its digest."""
    head, tail, total = f"{name}-begins".encode(), f"{name}-ends".encode(), TOTALS[name]
    body = total - len(head) - len(tail)
    digest = hashlib.sha256(head)
    for _ in range(body // len(BLOCK)):
        digest.update(BLOCK)
    rest = BLOCK[: body % len(BLOCK)]
    digest.update(rest + tail)
    return (head + BLOCK)[:KEPT], (BLOCK + rest + tail)[-KEPT:], digest.hexdigest()


@dataclass(slots=True)
class Memory:
    """Samples the resident memory of a gateway and everything below it, but for the command itself."""

    gateway: RunningGateway
    idle: dict[str, int] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    spooled: int = 0

    def sample(self) -> None:
        """Take one sample of every process and of the spool."""
        for name, size in self._sizes():
            self.peak[name] = max(self.peak.get(name, 0), size)
        spool = 0
        for directory, _, names in os.walk(self.gateway.state_dir / "providers"):
            for name in names:
                try:
                    spool += (Path(directory) / name).stat().st_blocks * 512
                except OSError:
                    continue  # it was released meanwhile
        self.spooled = max(self.spooled, spool)

    def settle(self) -> None:
        """Take the idle sample."""
        self.idle = dict(self._sizes())

    def _sizes(self) -> Iterator[tuple[str, int]]:
        gateway = psutil.Process(self.gateway.pid)
        yield "gateway", gateway.memory_info().rss
        for provider in gateway.children():
            yield "provider", provider.memory_info().rss
            for spawner in provider.children():
                yield "spawner", spawner.memory_info().rss
                for supervisor in spawner.children():
                    try:
                        yield "supervisor", supervisor.memory_info().rss
                    except psutil.Error:
                        continue  # its run is over


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway that lets this Python run, with room for the flood."""
    directory = tmp_path_factory.mktemp("flood")
    config = configs.write(
        directory,
        script=SCRIPT.replace("PYTHON", PYTHON.name),
        rules=RULES.replace("PROGRAM", str(PYTHON)),
        profile=f"output: 4GiB, path: [{', '.join(PLACES)}]",
    )
    with serving(directory, config) as running:
        (running.state_dir / "workspaces/default/flood.py").write_text(PROGRAM, encoding="utf-8")
        yield running


async def poured(client: Client, memory: Memory) -> list[event_pb2.Event]:
    """Let the flood come; sample until its turn has ended."""
    turn = asyncio.create_task(client.turn("flood"))
    while not turn.done():
        await asyncio.to_thread(memory.sample)
        await asyncio.wait([turn], timeout=0.02)
    return turn.result()[1]


def evidence(database: Path, call_id: str) -> sqlite3.Row:
    """Read what is kept of a call's output."""
    connection = sqlite3.connect(database)
    try:
        connection.row_factory = sqlite3.Row
        rows = connection.execute("SELECT * FROM evidence WHERE call_id = ?", (call_id,))
        found: sqlite3.Row = rows.fetchone()
        return found
    finally:
        connection.close()


async def test_a_gibibyte_of_output_is_counted_exactly_and_held_by_nobody(gateway: RunningGateway) -> None:
    """Exit 0, exact totals, digests, head and tail; bounded text for the model, bounded spool and memory."""
    memory = Memory(gateway)
    async with connected(gateway) as client:
        for _ in range(3):
            await client.turn("warm")
        memory.settle()
        events = await poured(client, memory)
    assert events[-1].turn_finished.state == event_pb2.TURN_STATE_COMPLETED, events[-1].turn_finished.reason
    (call,) = finished(events)
    assert call.state == event_pb2.CALL_STATE_SUCCEEDED
    assert call.process.exit_code == 0
    assert len(call.content.encode()) < 256 * KIB, "bounded text for the model"
    kept = evidence(gateway.state_dir / "tyrum.sqlite3", call.call_id)
    for name, stream in (("stdout", call.process.stdout), ("stderr", call.process.stderr)):
        head, tail, sha256 = expected(name)
        assert stream.total_bytes == TOTALS[name]
        assert stream.sha256.removeprefix("sha256:") == sha256
        assert (kept[f"{name}_bytes"], kept[f"{name}_sha256"]) == (stream.total_bytes, stream.sha256)
        assert kept[f"{name}_head"] == head
        assert kept[f"{name}_tail"] == tail
    growth = {
        name: peak - memory.idle.get(name, memory.idle["supervisor"]) for name, peak in memory.peak.items()
    }
    assert set(growth) == {"gateway", "provider", "spawner", "supervisor"}
    assert {name: size for name, size in growth.items() if size > GROWTH} == {}, growth
    assert SPOOL < memory.spooled <= 2 * SPOOL + SLACK
