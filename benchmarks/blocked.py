"""`python -m benchmarks.blocked`: 10,000 turns that wait for an approval, and 10,000 that expire at once.

Those that wait are real: each was sent, generated and decided. Those that expire are copies of a real one,
written through the store by the kernel's own transitions before a gateway is started on them.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import psutil

from benchmarks.report import Report
from tests.support import blocked, configs, observed_gateway
from tests.support.client import Client, connected
from tests.support.gateway import RunningGateway
from tyrum.approval.v1 import approval_pb2

TURNS = 10_000
AT_ONCE = 32
WARM = 20
ROOM_MIB = 20.0
READY_SECONDS = 5.0
CALM_SECONDS = 1.0
"""A message that is sent while others expire is answered within this time, in the median."""
_MIB = 1024 * 1024


@asynccontextmanager
async def gateway_with_question(directory: Path) -> AsyncIterator[tuple[RunningGateway, str]]:
    """A gateway that has been killed with one waiting turn, and its approval."""
    gateway = RunningGateway(directory / "state", configs.write(directory, more=blocked.PERMITTED))
    try:
        gateway.start()
        async with connected(gateway) as client:
            events = await client.until(await ask(client), "approval_requested")
        gateway.kill()
        yield gateway, events[-1].approval_requested.approval_id
    finally:
        gateway.kill()


async def written(gateway: RunningGateway, like: str, lasts: timedelta) -> None:
    """Write the turns, and say how long it took."""
    begun = time.perf_counter()
    await blocked.write(gateway.state_dir / "tyrum.sqlite3", TURNS, like=like, text="ask", lasts=lasts)
    print(f"  {'written by the store in':<44} {time.perf_counter() - begun:8.1f} s")


async def waiting(report: Report, directory: Path) -> None:
    """Tasks and memory before and after so many real turns have asked, then a start with all of them."""
    report.section(f"{TURNS} turns that wait for an approval")
    gateway = RunningGateway(directory / "state", configs.write(directory, more=blocked.PERMITTED))
    gateway.launcher = (sys.executable, observed_gateway.__file__)
    try:
        begun = time.perf_counter()
        gateway.start()
        empty, computed = time.perf_counter() - begun, computing(gateway)
        async with connected(gateway) as client:
            for _ in range(WARM):
                await ask(client)
            idle = await observed_gateway.observe(gateway.state_dir, gateway.pid)
            begun = time.perf_counter()
            for _ in range(0, TURNS, AT_ONCE):
                await asyncio.gather(*(ask(client) for _ in range(AT_ONCE)))
            print(f"  {'asked in':<44} {time.perf_counter() - begun:8.1f} s")
            full = await observed_gateway.observe(gateway.state_dir, gateway.pid)
        gateway.kill()
        begun = time.perf_counter()
        gateway.start()
        ready, computed_full = time.perf_counter() - begun, computing(gateway)
        again = await observed_gateway.observe(gateway.state_dir, gateway.pid)
    finally:
        gateway.kill()
    print(f"  {'tasks idle, with them, after a restart':<44} {idle.tasks:8} {full.tasks} {again.tasks}")
    memory = " ".join(f"{one.rss / _MIB:.1f}" for one in (idle, full, again))
    print(f"  {'MiB idle, with them, after a restart':<44} {memory:>8}")
    print(f"  {'seconds until ready, empty and with them':<44} {empty:8.2f} {ready:.2f}")
    print(f"  {'of which CPU of the gateway':<44} {computed:8.2f} {computed_full:.2f}")
    bounded(report, "tasks more than idle", max(full.tasks, again.tasks) - idle.tasks, 0)
    bounded(report, "MiB more than idle", (max(full.rss, again.rss) - idle.rss) / _MIB, ROOM_MIB)
    bounded(report, "seconds until ready", ready, READY_SECONDS)


async def ask(client: Client) -> str:
    """Send a message whose turn asks, and go away; return its conversation."""
    stream = client.send("ask")
    accepted = (await anext(stream)).accepted
    await stream.aclose()
    return accepted.conversation_id


async def expiring(report: Report, directory: Path) -> None:
    """Messages that are sent while all of them expire at once and their turns go on."""
    report.section(f"{TURNS} questions that expire at once")
    async with gateway_with_question(directory) as (gateway, like):
        await written(gateway, like, timedelta(seconds=-1))
        begun = time.perf_counter()
        gateway.start()
        print(f"  {'ready after a start':<44} {time.perf_counter() - begun:8.2f} s")
        taken = []
        async with connected(gateway) as client:
            while await pending(client) > 1:
                sent = time.perf_counter()
                await client.turn("hello")
                taken.append((time.perf_counter() - sent) * 1000)
                await asyncio.sleep(0.1)
        print(f"  {'until every turn has gone on':<44} {time.perf_counter() - begun:8.1f} s")
        middle = report.median("a message meanwhile", taken)
        bounded(report, "seconds for a message meanwhile", middle / 1000, CALM_SECONDS)


def computing(gateway: RunningGateway) -> float:
    """Seconds of CPU that a gateway has used; unlike its start, they depend little on what else runs."""
    times = psutil.Process(gateway.pid).cpu_times()
    return float(times.user + times.system)


async def pending(client: Client) -> int:
    """Count open questions, as far as one page shows them."""
    request = approval_pb2.ListApprovalsRequest(page_size=2)
    return len(
        (await client.approvals.ListApprovals(request, metadata=client.metadata, timeout=30)).approvals
    )


def bounded(report: Report, name: str, value: float, bound: float) -> None:
    """Print a figure beside its bound."""
    met = value <= bound
    print(f"  {name:<44} {value:8.2f}     bound ≤ {bound:g}   {'met' if met else 'MISSED'}")
    if not met:
        report.missed.append(f"{name}: {value:.2f} (bound ≤ {bound:g})")


def main() -> int:
    """Run both in a scratch directory; return the number of missed bounds."""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="tb") as scratch:
        asyncio.run(waiting(report, Path(scratch) / "waiting"))
        asyncio.run(expiring(report, Path(scratch) / "expiring"))
    for missed in report.missed:
        print(f"missed: {missed}")
    return len(report.missed)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
