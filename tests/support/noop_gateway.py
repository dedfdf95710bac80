"""A gateway with a read-only tool, `bench.noop`, beside its own; composed for tests only.

It comes from a nursery, which has imported the libraries of models behind HTTP.
"""

import asyncio
import os
from pathlib import Path

import anthropic  # noqa: F401 - imported before the fork
import openai  # noqa: F401

from benchmarks.noop import NAME, NoopTool
from tests.support.model_server import KEY
from tests.support.model_server.gateway import VARIABLE
from tests.support.nursery import nurse
from tyrum_gateway.bootstrap import Seams, serve
from tyrum_gateway.config import load_settings


def run(state_dir: Path, config: Path) -> None:
    """Serve until SIGTERM."""
    settings = load_settings(config, environment=os.environ | {VARIABLE: KEY}, state_dir=state_dir)
    seams = Seams(tools={NAME: NoopTool()})
    asyncio.run(serve(settings, version="test", ready=lambda _: None, seams=seams))


if __name__ == "__main__":
    nurse(run)
