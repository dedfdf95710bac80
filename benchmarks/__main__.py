"""`make bench`: ratios measured in one run, because machines differ and these are noisy."""

import asyncio
import hashlib
import shutil
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import gateway, history, spawning, watchers
from benchmarks.client import BenchClient
from benchmarks.report import Report

REPEATS = 40
CONCURRENT = 16
EVENTS = 10_000

CONFIG = """\
version: 1
models:
  scripted: {kind: scripted, script: SCRIPT}
agents:
  default:
    model: scripted
    policy: default
    workspace: workspaces/default
    profiles: {isolation: default}
providers:
  local:
    kind: isolation
    command: [tyrum-provider-local-spawn]
    config: {run_as: gateway_user}
    trust: operator_installed
    deployment: local_process
profiles:
  isolation:
    default: {provider: local}
policy:
  default:
    rules:
      - id: run-true
        decision: allow
        author: the benchmark
        match: {tool: process.run, program: /usr/bin/true, argv: []}
"""
SCRIPT = """\
version: 1
scenarios:
  - user: noop
    steps:
      - calls: [{tool: bench.noop, arguments: {}}]
      - deltas: [done]
  - user: "true"
    steps:
      - calls: [{tool: process.run, arguments: {argv: ["true"]}}]
      - deltas: [done]
  - user: ask
    steps:
      - calls: [{tool: process.run, arguments: {argv: [date, "+%s%N"]}}]
      - deltas: [done]
  - user: text
    steps:
      - deltas: [done]
"""


async def run(scratch: Path) -> int:
    """Measure everything once; return the number of missed bounds."""
    report = Report()
    (scratch / "script.yaml").write_text(SCRIPT, encoding="utf-8")
    config = scratch / "config.yaml"
    config.write_text(CONFIG.replace("SCRIPT", str(scratch / "script.yaml")))
    await processes(report, scratch, config)
    await turns(report, scratch, config)
    await approvals(report, scratch, config)
    await past(report, scratch, config)
    await watchers.measure(report, scratch, config, REPEATS)
    print()
    for missed in report.missed:
        print(f"missed: {missed}")
    return len(report.missed)


async def processes(report: Report, scratch: Path, config: Path) -> None:
    """process.run of /usr/bin/true beside a bare spawn and beside the ungoverned call, interleaved."""
    report.section("process.run of /usr/bin/true")
    runtime, workspace = scratch / "r", scratch / "w"
    runtime.mkdir(mode=0o700)
    workspace.mkdir()
    command = shutil.which("tyrum-provider-local-spawn", path=str(Path(sys.executable).parent))
    assert command is not None
    serving = await gateway.start(scratch / "processes", config)
    client = BenchClient(serving.address, serving.token)
    bare, ungoverned, whole = [], [], []
    async with spawning.host(command, scratch / "host", runtime) as host:
        await host.wait_settled(30)
        status, isolation = host.status("local"), host.isolation("local")
        assert status.descriptor is not None
        report.median("listening → admitted", [(status.admission_seconds or 0) * 1000])
        identity, conversation = spawning.identify(workspace), ""
        for _ in range(REPEATS):
            bare.append(await spawning.bare())
            ungoverned.append(await spawning.ungoverned(isolation, status.descriptor.provider_id, identity))
            taken, conversation = await client.turn("true", conversation)
            whole.append(taken)
    await client.channel.close()
    parts = gateway.phases(await serving.stop())
    spawn = report.median("bare asyncio spawn", bare)
    direct = report.median("ungoverned call on the provider", ungoverned)
    governed = report.median("decided → settled", parts["decided→settled"])
    for name in ("commit of decision", "tool", "commit of result"):
        report.median(f"  of which {name}", parts[name])
    report.median("whole turn, as the client sees it", whole)
    report.ratio("decided → settled / bare spawn", governed / spawn, 5)
    report.ratio("decided → settled / ungoverned call", governed / direct, 2)


async def turns(report: Report, scratch: Path, config: Path) -> None:
    """A turn with the no-op tool, alone and with many conversations at once."""
    report.section("turn with a no-op tool")
    serving = await gateway.start(scratch / "turns", config)
    client = BenchClient(serving.address, serving.token)
    alone, conversation = [], ""
    for _ in range(REPEATS):
        taken, conversation = await client.turn("noop", conversation)
        alone.append(taken)
    report.median("alone", alone)

    async def converse() -> list[float]:
        own, conversation = [], ""
        for _ in range(REPEATS // 4):
            taken, conversation = await client.turn("noop", conversation)
            own.append(taken)
        return own

    begun = time.perf_counter()
    together = [
        taken for many in await asyncio.gather(*(converse() for _ in range(CONCURRENT))) for taken in many
    ]
    seconds = time.perf_counter() - begun
    report.median(f"each of {CONCURRENT} conversations at once", together)
    print(f"  {'turns per second at once':<44} {len(together) / seconds:8.1f}")
    await client.channel.close()
    await serving.stop()
    size = sum(file.stat().st_size for file in (scratch / "turns").glob("tyrum.sqlite3*"))
    print(f"  {'disk per turn':<44} {size / (len(alone) + len(together)) / 1024:8.1f} KiB")


async def approvals(report: Report, scratch: Path, config: Path) -> None:
    """From a human's answer until the command runs."""
    report.section("approval of a process.run")
    serving = await gateway.start(scratch / "approvals", config)
    client = BenchClient(serving.address, serving.token)
    waits, conversation = [], ""
    for _ in range(REPEATS):
        taken, conversation = await client.approved_turn("ask", conversation)
        waits.append(taken)
    await client.channel.close()
    await serving.stop()
    report.bounded("answer sent → command running", waits, 20)


async def past(report: Report, scratch: Path, config: Path) -> None:
    """The same turn in a conversation without and with a long past, interleaved."""
    report.section(f"turn after {EVENTS} events")
    state = scratch / "past"
    state.mkdir(mode=0o700)
    token = "bench-token-" + "0" * 32
    (state / "operator.token").write_text(token)
    (state / "operator.token").chmod(0o600)
    digest = hashlib.sha256(token.encode()).hexdigest()
    old = await history.write(state / "tyrum.sqlite3", EVENTS, digest)
    serving = await gateway.start(state, config)
    client = BenchClient(serving.address, serving.token)
    fresh, aged = [], []
    _, new = await client.turn("noop")
    await client.turn("noop", old)
    for _ in range(REPEATS):
        fresh.append((await client.turn("noop", new))[0])
        aged.append((await client.turn("noop", old))[0])
    await client.channel.close()
    await serving.stop()
    young, long = report.median("young conversation", fresh), report.median("long conversation", aged)
    report.ratio("long / young", long / young, 1.2)


def main() -> int:
    """Run in a scratch directory."""
    with tempfile.TemporaryDirectory(prefix="tb") as scratch:
        return asyncio.run(run(Path(scratch)))


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
