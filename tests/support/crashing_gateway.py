"""A gateway that kills itself by SIGKILL at a named point of a turn; composed for tests only.

It comes from a nursery. It dies at the point that the file `armed` beside the state directory names, once:
the file is gone by then. With `failing COMMIT` in it nothing dies, but commits fail from that one on, three
times, as on a full disk.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from tests.support.nursery import nurse
from tyrum_gateway.bootstrap import Seams, serve
from tyrum_gateway.config import load_settings
from tyrum_gateway.domain.commit import Acceptance, Accepted, Commit, Committed
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.domain.model import Model, ModelEvent, Prompt, StepEnd, ToolSchema
from tyrum_gateway.domain.states import TurnState
from tyrum_gateway.domain.tool import Execution, Prepared, Rejected, Tool, ToolResult
from tyrum_gateway.domain.transcript import (
    ApprovalRequested,
    ApprovalResolved,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from tyrum_gateway.storage import SqliteStore

POINTS = {
    "accepting": "before the commit of the message",
    "accepted": "after the commit of the message, before the client hears of it",
    "claiming": "before the commit that takes the turn up and begins its first attempt",
    "attempt begun": "after that commit, before anything is read for the prompt",
    "hydrated": "the past has been read, the model has not been asked",
    "generated": "the model's terminal event has come, nothing has been looked at",
    "decided": "policy has decided; before the commit that holds calls, decisions, operation and binding",
    "binding committed": "after that commit, before the provider is called",
    "approval creating": "before the commit that holds calls, decisions and the question",
    "approval created": "after that commit, before anybody is asked",
    "approval resolving": "before the commit of the answer",
    "approval resolved": "after that commit, before the human hears of it and the call goes on",
    "provider called": "the command runs and has left its mark, its end has not been heard of",
    "result received": "the tool has returned; before the commit of the result",
    "result committed": "after that commit, which begins the next attempt too",
    "checkpoint": "before the commit that holds the last text, the checkpoint and the end of the turn",
    "settled": "after that commit, before anybody hears of it",
}
"""Where the process is when it dies. Decided, operation and binding are one commit, and so are checkpoint and
end: what is between them cannot be found in any database."""

_BEFORE = {
    "accept": "accepting",
    "claim": "claiming",
    "begin": "decided",
    "ask": "approval creating",
    "answer": "approval resolving",
    "settle": "checkpoint",
}
_AFTER = {
    "accept": "accepted",
    "claim": "attempt begun",
    "begin": "binding committed",
    "ask": "approval created",
    "answer": "approval resolved",
    "result": "result committed",
    "settle": "settled",
}

MARK = "marked"
"""The file in the workspace by which the command that is killed in `provider called` shows that it runs."""


class Trap:
    """The file that names the point."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir.parent / "armed"
        self._mark = state_dir / "workspaces/default" / MARK

    def armed(self) -> str:
        """Return what it names."""
        return self._file.read_text(encoding="utf-8") if self._file.exists() else ""

    def disarm(self) -> None:
        """Do not do it again."""
        self._file.unlink()

    def spring(self, point: str | None) -> None:
        """Die if this is the point."""
        if point is not None and self.armed() == point:
            self.disarm()
            os.kill(os.getpid(), signal.SIGKILL)

    async def spring_at_mark(self) -> None:
        """Die, if `provider called` is the point, once the command runs."""
        while self.armed() == "provider called":
            if self._mark.exists():
                self.spring("provider called")
            await asyncio.sleep(0.01)


def commit_of(commit: Commit) -> str:
    """Name a commit by the most telling of what it holds."""
    kinds = {type(payload) for payload in commit.events}
    if ApprovalRequested in kinds:
        return "ask"
    if ApprovalResolved in kinds:
        return "answer"
    if TurnFinished in kinds:
        return "settle"
    if ToolCallFinished in kinds:
        return "result"
    if ToolCallStarted in kinds:
        return "begin"
    return "claim" if commit.turn.state is TurnState.RUNNING else "other"


class CrashingStore(SqliteStore):
    """Dies or fails at one commit."""

    trap: Trap
    failures = 0

    async def accept(self, acceptance: Acceptance) -> Accepted:
        """Accept, unless it is the point."""
        self.trap.spring(_BEFORE["accept"])
        answer = await super().accept(acceptance)
        self.trap.spring(_AFTER["accept"])
        return answer

    async def commit(self, commit: Commit) -> Committed:
        """Commit, unless it is the point."""
        name = commit_of(commit)
        self.trap.spring(_BEFORE.get(name))
        if self.trap.armed() == f"failing {name}":
            self.trap.disarm()
            self.failures = 3
        if self.failures:
            self.failures -= 1
            raise StateUnusable("the disk is full")
        answer = await super().commit(commit)
        self.trap.spring(_AFTER.get(name))
        return answer


class CrashingModel:
    """Dies when it is asked, or after the terminal event."""

    def __init__(self, model: Model, trap: Trap) -> None:
        self._model = model
        self._trap = trap

    async def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Generate, unless it is the point."""
        self._trap.spring("hydrated")
        async with aclosing(self._model.generate(prompt)) as events:
            async for event in events:
                if isinstance(event, StepEnd):
                    self._trap.spring("generated")
                yield event


class CrashingTool:
    """Dies while the tool executes, or when it has."""

    def __init__(self, tool: Tool, trap: Trap) -> None:
        self._tool = tool
        self._trap = trap

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
        """Execute, unless it is the point."""
        dying = asyncio.ensure_future(self._trap.spring_at_mark())
        try:
            result = await self._tool.execute(prepared, execution)
        finally:
            dying.cancel()
        self._trap.spring("result received")
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


def crashing(state_dir: Path, config: Path) -> None:
    """Serve until the point comes."""
    trap = CrashingStore.trap = Trap(state_dir)
    seams = Seams(
        open_store=CrashingStore.open,
        around_model=lambda model: CrashingModel(model, trap),
        around_tool=lambda tool: CrashingTool(tool, trap),
    )
    settings = load_settings(config, environment=os.environ, state_dir=state_dir)
    asyncio.run(serve(settings, version="test", ready=lambda _: None, seams=seams))


if __name__ == "__main__":
    nurse(crashing)
