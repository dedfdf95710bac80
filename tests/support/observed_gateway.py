"""A gateway that tells how many tasks it has; composed for tests and benchmarks only.

Run as `python observed_gateway.py --state-dir DIR --config FILE`. At each SIGUSR1 it replaces the file
`observed` beside the state directory with a JSON object: `tasks` of asyncio and `rss` in bytes.
"""

import argparse
import asyncio
import json
import os
import resource
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tyrum_gateway.bootstrap import serve
from tyrum_gateway.config import load_settings


@dataclass(frozen=True, slots=True)
class Observed:
    """What a gateway is made of at a moment."""

    tasks: int
    rss: int
    """Bytes."""


async def observe(state_dir: Path, pid: int) -> Observed:
    """Ask a gateway, and again until its number of tasks has not changed for a while: then it is idle."""
    file = state_dir.parent / "observed"
    last, since = -1, time.monotonic()
    async with asyncio.timeout(60):
        while True:
            file.unlink(missing_ok=True)
            while not file.exists():
                os.kill(pid, signal.SIGUSR1)  # again, because it is ignored until the gateway is ready
                await asyncio.sleep(0.1)
            value = json.loads(file.read_text(encoding="utf-8"))
            if value["tasks"] != last:
                last, since = value["tasks"], time.monotonic()
            elif time.monotonic() - since > 1.0:
                return Observed(value["tasks"], value["rss"])


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True)
    chosen = parser.parse_args()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    target = chosen.state_dir.parent / "observed"

    def tell() -> None:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        value = {
            "tasks": len(asyncio.all_tasks()),
            "rss": pages * resource.getpagesize(),
        }
        draft = target.with_suffix(".draft")
        draft.write_text(json.dumps(value), encoding="utf-8")
        draft.replace(target)

    settings = load_settings(chosen.config, environment=os.environ, state_dir=chosen.state_dir)

    def ready(_: object) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell)

    asyncio.run(serve(settings, version="test", ready=ready))


if __name__ == "__main__":
    main()
