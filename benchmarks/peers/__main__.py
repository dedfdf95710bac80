"""`make bench-peers`: the same durable one-tool turn here, in LangGraph and in DBOS, interleaved in one run.

Argument: the interpreter of an environment that has `requirements.txt`. Exits with 1 when a goal is missed.
"""

import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.peers import tyrum_turn
from benchmarks.peers.tyrum_turn import Measured

ROUNDS = 5
ALONE = 50
CONVERSATIONS = 16
TOGETHER = 20
LONG = 400
EDGE = 50
"""Turns at each end of a long conversation that are compared."""

Measure = Callable[[Path, int, int], Awaitable[Measured]]


def _peer(python: str, script: str) -> Measure:
    async def measure(scratch: Path, conversations: int, turns: int) -> Measured:
        database = _place(scratch)
        process = await asyncio.create_subprocess_exec(
            python,
            Path(__file__).with_name(script),
            database,
            str(conversations),
            str(turns),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        out, _ = await asyncio.wait_for(process.communicate(), 900)
        found = json.loads(out.splitlines()[-1])
        return Measured(found["times"], found["elapsed"], found["bytes"], found["rss"])

    return measure


def _place(scratch: Path) -> Path:
    scratch.mkdir()
    return scratch / "peer.sqlite3"


async def run(scratch: Path, python: str) -> int:
    """Measure everything; return the number of missed goals."""
    contestants: dict[str, Measure] = {
        "tyrum": tyrum_turn.measure,
        "langgraph": _peer(python, "langgraph_turn.py"),
        "dbos": _peer(python, "dbos_turn.py"),
    }
    alone: dict[str, list[float]] = {name: [] for name in contestants}
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(ROUNDS):
        for name, measure in contestants.items():
            alone[name] += (await measure(scratch / f"{name}-a{number}", 1, ALONE)).times
        for name, measure in contestants.items():
            crowd = await measure(scratch / f"{name}-b{number}", CONVERSATIONS, TOGETHER)
            rates[name].append(CONVERSATIONS * TOGETHER / crowd.elapsed)
    print(f"{'':<12}{'ms a turn':>11}{f'turns/s at {CONVERSATIONS}':>16}")
    for name in contestants:
        print(f"{name:<12}{statistics.median(alone[name]):>11.1f}{statistics.median(rates[name]):>16.1f}")
    print(f"\n{LONG} turns of one conversation")
    header = (
        f"{'':<12}{f'first {EDGE}, ms':>14}{f'last {EDGE}, ms':>14}{'ratio':>8}{'KiB a turn':>12}{'MiB':>6}"
    )
    print(header)
    growth, weight = {}, {}
    for name, measure in contestants.items():
        long = await measure(scratch / f"{name}-c", 1, LONG)
        first, last = statistics.median(long.times[:EDGE]), statistics.median(long.times[-EDGE:])
        growth[name], weight[name] = last / first, long.size / (LONG + 1) / 1024
        print(
            f"{name:<12}{first:>14.1f}{last:>14.1f}{growth[name]:>8.2f}{weight[name]:>12.1f}"
            f"{long.rss / 2**20:>6.0f}"
        )
    print()
    time = statistics.median(alone["tyrum"]) / statistics.median(alone["langgraph"])
    rate = statistics.median(rates["tyrum"]) / statistics.median(rates["langgraph"])
    goals = (
        (f"time against LangGraph {time:.2f}x, goal at most 0.75x", time <= 0.75),
        (f"turns per second against LangGraph {rate:.2f}x, goal at least 2x", rate >= 2),
        (f"last turns against first {growth['tyrum']:.2f}x, goal at most 1.2x", growth["tyrum"] <= 1.2),
        (f"disk {weight['tyrum']:.1f} KiB a turn, goal at most 12 KB", weight["tyrum"] * 1.024 <= 12),
    )
    for text, met in goals:
        print(f"{'met' if met else 'missed':<8}{text}")
    return sum(not met for _, met in goals)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="tp") as directory:
        sys.exit(1 if asyncio.run(run(Path(directory), sys.argv[1])) else 0)
