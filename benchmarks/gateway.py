"""A gateway composed for benchmarks: the no-op tool, and a store that notes when commits begin and end.

Run as a process: `python -m benchmarks.gateway STATE_DIR CONFIG TIMINGS`; timings are written at the end.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.noop import NAME, NoopTool
from tyrum_gateway.bootstrap import Seams, Serving, serve
from tyrum_gateway.config import load_settings
from tyrum_gateway.domain.commit import Commit, Committed
from tyrum_gateway.storage import SqliteStore

TIMINGS: list[dict[str, Any]] = []


class TimedStore(SqliteStore):
    """Notes when each commit began and ended."""

    async def commit(self, commit: Commit) -> Committed:
        """Commit, with a stopwatch."""
        begun = time.perf_counter()
        answer = await super().commit(commit)
        kinds = [type(payload).__name__ for payload in commit.events]
        TIMINGS.append(
            {"turn": commit.turn.turn_id, "kinds": kinds, "begun": begun, "ended": time.perf_counter()}
        )
        return answer


def main() -> None:
    """Serve until SIGTERM."""
    state, config, timings = (Path(argument) for argument in sys.argv[1:4])
    settings = load_settings(config, environment=os.environ, state_dir=state)

    def ready(serving: Serving) -> None:
        print("ready", *serving.addresses, flush=True)

    seams = Seams(open_store=partial(TimedStore.open, log_room=True), tools={NAME: NoopTool()})
    asyncio.run(serve(settings, version="bench", ready=ready, seams=seams))
    timings.write_text("".join(json.dumps(entry) + "\n" for entry in TIMINGS), encoding="utf-8")


@dataclass(slots=True)
class BenchGateway:
    """A running gateway process."""

    address: str
    token: str
    process: asyncio.subprocess.Process
    timings: Path

    async def stop(self) -> list[dict[str, Any]]:
        """End it and return the timings of its commits."""
        self.process.terminate()
        await asyncio.wait_for(self.process.wait(), 30)
        return [json.loads(line) for line in self.timings.read_text(encoding="utf-8").splitlines()]


async def start(state: Path, config: Path) -> BenchGateway:
    """Start a gateway process and wait until it serves."""
    timings = state.with_suffix(".timings")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.gateway",
        str(state),
        str(config),
        str(timings),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().split()
    token = (state / "operator.token").read_text(encoding="ascii").strip()
    return BenchGateway(line[1], token, process, timings)


def phases(timings: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Split each turn's commits into the phases between them, in milliseconds."""
    by_turn: dict[str, list[dict[str, Any]]] = {}
    for entry in timings:
        by_turn.setdefault(entry["turn"], []).append(entry)
    names = ("decided→settled", "commit of decision", "tool", "commit of result")
    found: dict[str, list[float]] = {name: [] for name in names}
    for entries in by_turn.values():
        decided = next((entry for entry in entries if "ToolCallStarted" in entry["kinds"]), None)
        settled = next((entry for entry in entries if "ToolCallFinished" in entry["kinds"]), None)
        if decided is None or settled is None:
            continue
        found["decided→settled"].append((settled["ended"] - decided["begun"]) * 1000)
        found["commit of decision"].append((decided["ended"] - decided["begun"]) * 1000)
        found["tool"].append((settled["begun"] - decided["ended"]) * 1000)
        found["commit of result"].append((settled["ended"] - settled["begun"]) * 1000)
    return found


if __name__ == "__main__":
    main()
