"""A gateway that kills itself by SIGKILL right before or after a chosen commit; composed for tests only.

Run as `python crashing_gateway.py WHEN POINT --state-dir DIR --config FILE`, WHEN being `before` or `after`,
or `failing`: then nothing is killed, but commits fail from there on a few times, as on a full disk.
"""

import argparse
import asyncio
import os
import signal
from pathlib import Path

from tyrum_gateway.bootstrap import Seams, serve
from tyrum_gateway.config import load_settings
from tyrum_gateway.domain.commit import Acceptance, Accepted, Commit
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.domain.states import TurnState
from tyrum_gateway.domain.transcript import (
    ApprovalRequested,
    ApprovalResolved,
    Event,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from tyrum_gateway.domain.turn import Turn
from tyrum_gateway.storage import SqliteStore

POINTS = ("accept", "claim", "begin", "ask", "answer", "result", "settle")
"""The commits of turns with one tool call, with and without an approval."""


def point_of(commit: Commit) -> str:
    """Name the persistence point of a commit."""
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
    """Dies at one commit."""

    when = ""
    point = ""
    broken = False
    failures = 3

    async def accept(self, acceptance: Acceptance) -> Accepted:
        """Accept, unless it is the point."""
        self._die("before", "accept")
        answer = await super().accept(acceptance)
        self._die("after", "accept")
        return answer

    async def commit(self, commit: Commit) -> tuple[Turn, tuple[Event, ...]]:
        """Commit, unless it is the point."""
        point = point_of(commit)
        self._die("before", point)
        self.broken = self.broken or (self.when, self.point) == ("failing", point)
        if self.broken and self.failures:
            self.failures -= 1
            raise StateUnusable("the disk is full")
        answer = await super().commit(commit)
        self._die("after", point)
        return answer

    def _die(self, when: str, point: str) -> None:
        if (when, point) == (self.when, self.point):
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Serve until the point comes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("when", choices=("before", "after", "failing"))
    parser.add_argument("point", choices=POINTS)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True)
    chosen = parser.parse_args()
    CrashingStore.when, CrashingStore.point = chosen.when, chosen.point

    settings = load_settings(chosen.config, environment=os.environ, state_dir=chosen.state_dir)
    asyncio.run(
        serve(settings, version="test", ready=lambda _: None, seams=Seams(open_store=CrashingStore.open))
    )


if __name__ == "__main__":
    main()
