"""A gateway with a read-only tool, `bench.noop`, beside its own; composed for tests only.

Run as `python noop_gateway.py --state-dir DIR --config FILE`.
"""

import argparse
import asyncio
import os
from pathlib import Path

from benchmarks.noop import NAME, NoopTool
from tyrum_gateway.bootstrap import Seams, serve
from tyrum_gateway.config import load_settings


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True)
    chosen = parser.parse_args()
    settings = load_settings(chosen.config, environment=os.environ, state_dir=chosen.state_dir)
    seams = Seams(tools={NAME: NoopTool()})
    asyncio.run(serve(settings, version="test", ready=lambda _: None, seams=seams))


if __name__ == "__main__":
    main()
