"""The gateway of a lane: its model plays plans, and it leaves a trace of where each turn is.

`python -m tests.soak.gateway` forks one for each line on its standard input. The trace, beside the state
directory, has a line for each step into a phase that no row shows; it survives a kill. A phase named in the
file `armed` makes the process kill itself there, once.
"""

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

from tests.soak.phases import DECIDING, EXECUTING, GENERATING, HYDRATING, LAUNCHING, SETTLING
from tests.soak.plan import Plan
from tests.support.nursery import nurse
from tyrum_gateway.bootstrap import Seams, serve
from tyrum_gateway.config import load_settings
from tyrum_gateway.domain.commit import Commit, Committed
from tyrum_gateway.domain.model import CallRequest, ModelEvent, Prompt, StepEnd, TextDelta, ToolSchema
from tyrum_gateway.domain.tool import Execution, Prepared, Rejected, Tool, ToolResult
from tyrum_gateway.domain.transcript import ApprovalResolved, TurnFinished
from tyrum_gateway.domain.turn import BeginCall, work
from tyrum_gateway.models.reading import last_user_text, steps_taken
from tyrum_gateway.storage import SqliteStore


class Trace:
    """Where turns are, in order, and where to die."""

    def __init__(self, directory: Path) -> None:
        self._armed = directory / "armed"
        self._lines = os.open(directory / "trace", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)

    def mark(self, turn: str, phase: str) -> None:
        """Note that a turn, named by its id or its request, has come into a phase; die if it is the place."""
        os.write(self._lines, f"{turn} {phase}\n".encode())
        if self._armed.exists() and self._armed.read_text(encoding="utf-8") == phase:
            self._armed.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


class TracedStore(SqliteStore):
    """Marks what only commits show."""

    trace: Trace

    async def commit(self, commit: Commit) -> Committed:
        """Mark, and commit."""
        if any(isinstance(payload, TurnFinished) for payload in commit.events):
            self.trace.mark(commit.turn.turn_id, SETTLING)
        answer = await super().commit(commit)
        answered = any(isinstance(payload, ApprovalResolved) for payload in commit.events)
        if answered and isinstance(work(answer[0]), BeginCall):
            self.trace.mark(commit.turn.turn_id, LAUNCHING)
        return answer


class PlannedModel:
    """Does what the newest message says."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    async def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Call the plan's commands in the first step, and say something in the second."""
        plan = Plan.parse(last_user_text(prompt))
        self._trace.mark(plan.name, HYDRATING)
        await asyncio.sleep(0)
        self._trace.mark(plan.name, GENERATING)
        await asyncio.sleep(plan.delay / 2)
        yield TextDelta("So be it. ")
        await asyncio.sleep(plan.delay / 2)
        first = steps_taken(prompt) == 0
        calls = tuple(
            CallRequest(
                "process.run",
                json.dumps({"argv": [command.program, command.mark, str(command.seconds)]}),
            )
            for command in plan.commands
            if first
        )
        yield StepEnd(calls)


class TracedTool:
    """Marks deciding, executing, and that it has executed."""

    def __init__(self, tool: Tool, trace: Trace) -> None:
        self._tool = tool
        self._trace = trace

    @property
    def schema(self) -> ToolSchema:
        """As it is."""
        return self._tool.schema

    def available(self) -> bool:
        """As it is."""
        return self._tool.available()

    async def prepare(self, arguments: str) -> Prepared | Rejected:
        """Prepare, and mark."""
        prepared = await self._tool.prepare(arguments)
        mark = str(json.loads(arguments)["argv"][1])
        self._trace.mark(mark.rpartition(".")[0], DECIDING)
        return prepared

    async def execute(self, prepared: Prepared, execution: Execution) -> ToolResult:
        """Mark, execute, and mark."""
        assert prepared.run is not None
        name = prepared.run.argv[1].rpartition(".")[0]
        executing = asyncio.ensure_future(self._tool.execute(prepared, execution))
        # Sometimes before the provider has heard of it, sometimes when the command has run already.
        await asyncio.wait({executing}, timeout=random.random() * 0.03)
        self._trace.mark(name, EXECUTING)
        try:
            result = await executing
        finally:
            executing.cancel()
        self._trace.mark(name, SETTLING)
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


def lane(state_dir: Path, config: Path) -> None:
    """Serve until killed."""
    trace = TracedStore.trace = Trace(state_dir.parent)
    seams = Seams(
        open_store=TracedStore.open,
        around_model=lambda _: PlannedModel(trace),
        around_tool=lambda tool: TracedTool(tool, trace),
    )
    settings = load_settings(config, environment=os.environ, state_dir=state_dir)
    asyncio.run(serve(settings, version="soak", ready=lambda _: None, seams=seams))


if __name__ == "__main__":
    nurse(lane)
