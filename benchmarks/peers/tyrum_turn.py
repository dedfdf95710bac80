"""The one-tool turn here: `tyrum serve` as operators start it, asked over gRPC, its tool in a provider.

Nothing is composed but the provider: policy, standing approval, binding, audit and transcript are real.
"""

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.client import BenchClient

_CONFIG = """\
version: 1
models:
  scripted: {{kind: scripted, script: {script}}}
agents:
  default:
    model: scripted
    policy: default
    profiles: {{isolation: default}}
providers:
  noop:
    kind: isolation
    command: [{python}, {provider}]
    trust: operator_installed
    deployment: local_process
profiles:
  isolation:
    default: {{provider: noop}}
policy:
  default:
    rules:
      - id: run-true
        decision: allow
        author: the benchmark
        match: {{tool: process.run, program: /usr/bin/true, argv: []}}
"""
_SCRIPT = """\
version: 1
scenarios:
  - user: go
    steps:
      - calls: [{tool: process.run, arguments: {argv: ["true"]}}]
      - deltas: [done]
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of turns."""

    times: list[float]
    """Milliseconds of each turn of the first conversation, in order."""
    elapsed: float
    """Seconds for all turns of all conversations."""
    size: int
    """Bytes on disk after it."""
    rss: int
    """Bytes of memory that the measured process had at the end."""


async def measure(scratch: Path, conversations: int, turns: int) -> Measured:
    """Serve, converse, stop."""
    config, state = _prepared(scratch)
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("tyrum"),
        "serve",
        *("--config", config, "--state-dir", state),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), 60)
        times, elapsed = await _converse(*_door(state), conversations, turns)
        rss = psutil.Process(process.pid).memory_info().rss
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 60)
    return Measured(times, elapsed, _size(state), rss)


async def _converse(address: str, token: str, conversations: int, turns: int) -> tuple[list[float], float]:
    client = BenchClient(address, token)

    async def converse() -> list[float]:
        times, conversation = [], ""
        for _ in range(turns):
            taken, conversation = await client.turn("go", conversation)
            times.append(taken)
        return times

    await client.turn("go")
    begun = time.perf_counter()
    together = await asyncio.gather(*(converse() for _ in range(conversations)))
    elapsed = time.perf_counter() - begun
    await client.channel.close()
    return together[0], elapsed


def _prepared(scratch: Path) -> tuple[Path, Path]:
    scratch.mkdir()
    script, config = scratch / "script.yaml", scratch / "config.yaml"
    script.write_text(_SCRIPT, encoding="utf-8")
    provider = Path(__file__).with_name("noop_provider.py")
    text = _CONFIG.format(script=script, python=sys.executable, provider=provider)
    config.write_text(text, encoding="utf-8")
    return config, scratch / "state"


def _door(state: Path) -> tuple[str, str]:
    address = json.loads((state / "gateway.json").read_text(encoding="utf-8"))["address"]
    return address, (state / "operator.token").read_text(encoding="ascii").strip()


def _size(state: Path) -> int:
    """Bytes of the database after an orderly end, when its log is part of it, as the peers' are."""
    return sum(file.stat().st_size for file in state.glob("tyrum.sqlite3*"))
