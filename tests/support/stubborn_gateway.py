"""A gateway whose model and tool ignore cancellation for a while; composed for tests only.

Run as `python stubborn_gateway.py --state-dir DIR --config FILE`. The model is stubborn when the newest text
of a user begins with `stubborn model`, the tool when its arguments hold `stubborn-tool`. When a stubborn
model lets go, a file of its text's name appears beside the state directory.
"""

import argparse
import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from tyrum_gateway.bootstrap import Seams, serve
from tyrum_gateway.config import load_settings
from tyrum_gateway.domain.model import Model, ModelEvent, Prompt, TextDelta, ToolSchema, UserText
from tyrum_gateway.domain.tool import Execution, Prepared, Rejected, Tool, ToolResult

STUBBORN_SECONDS = 40.0
"""Longer than any test waits."""


async def ignore_cancellation() -> None:
    """Go on, whatever is asked."""
    loop = asyncio.get_running_loop()
    until = loop.time() + STUBBORN_SECONDS
    while (left := until - loop.time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue


class StubbornModel:
    """Does not end when it is told to."""

    def __init__(self, model: Model, directory: Path) -> None:
        self._model = model
        self._directory = directory

    async def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Generate, or be stubborn."""
        said = [message.text for message in prompt.messages if isinstance(message, UserText)]
        if said[-1].startswith("stubborn model"):
            await ignore_cancellation()
            (self._directory / said[-1]).touch()
            yield TextDelta("too late")
        async with aclosing(self._model.generate(prompt)) as events:
            async for event in events:
                yield event


class StubbornTool:
    """Does not end when it is told to."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    @property
    def schema(self) -> ToolSchema:
        """As it is."""
        return self._tool.schema

    def available(self) -> bool:
        """As it is."""
        return self._tool.available()

    async def prepare(self, arguments: str) -> Prepared | Rejected:
        """As it is."""
        return await self._tool.prepare(arguments)

    async def execute(self, prepared: Prepared, execution: Execution) -> ToolResult:
        """Execute, then be stubborn."""
        result = await self._tool.execute(prepared, execution)
        if prepared.run is not None and "stubborn-tool" in prepared.run.argv:
            await ignore_cancellation()
        return result

    async def settle(self, execution: Execution) -> ToolResult:
        """As it is."""
        return await self._tool.settle(execution)

    async def stop(self, execution: Execution) -> None:
        """As it is."""
        await self._tool.stop(execution)

    async def release(self, execution: Execution) -> None:
        """As it is."""
        await self._tool.release(execution)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True)
    chosen = parser.parse_args()
    settings = load_settings(chosen.config, environment=os.environ, state_dir=chosen.state_dir)
    directory = chosen.state_dir.parent
    seams = Seams(around_model=lambda model: StubbornModel(model, directory), around_tool=StubbornTool)
    asyncio.run(serve(settings, version="test", ready=lambda _: None, seams=seams))


if __name__ == "__main__":
    main()
