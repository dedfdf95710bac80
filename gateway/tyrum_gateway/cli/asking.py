"""Asks the human at the terminal about approvals.

Invariants: nothing typed before a question is shown answers it; what is approved is the digest that was
shown; an answer from elsewhere ends the question; no answer leaves the approval waiting.
"""

import asyncio
import os
import sys
import termios
from collections.abc import Callable
from typing import Any

from tyrum.approval.v1.approval_pb2 import (
    ANSWER_APPROVE,
    ANSWER_APPROVE_ALWAYS,
    ANSWER_DENY,
    Approval,
    ResolveApprovalRequest,
)
from tyrum_gateway.cli.approval_client import get, resolve, show
from tyrum_gateway.cli.connection import Target, connect, flags
from tyrum_gateway.cli.failure import Failure, report
from tyrum_gateway.cli.output import note
from tyrum_gateway.cli.screen import Screen

_RETRY = 0.5
_APPROVALS = {
    "y": ANSWER_APPROVE,
    "yes": ANSWER_APPROVE,
    "a": ANSWER_APPROVE_ALWAYS,
    "always": ANSWER_APPROVE_ALWAYS,
}


class Desk:
    """Takes approvals in order and asks about one at a time."""

    def __init__(self, target: Callable[[], Target], screen: Screen) -> None:
        self._target = target
        self._screen = screen
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._closed: dict[str, asyncio.Event] = {}

    def ask(self, approval_id: str) -> None:
        """Put an approval into the queue."""
        self._closed[approval_id] = asyncio.Event()
        self._waiting.put_nowait(approval_id)

    def answered(self, approval_id: str) -> None:
        """Note that an approval has an outcome: its question ends."""
        if closed := self._closed.get(approval_id):
            closed.set()

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            approval_id = await self._waiting.get()
            closed = self._closed[approval_id]
            while not closed.is_set():
                try:
                    await self._one(approval_id, closed)
                except Failure as failure:
                    report(failure)
                    await asyncio.sleep(_RETRY)

    async def _one(self, approval_id: str, closed: asyncio.Event) -> None:
        target = self._target()
        async with connect(target) as gateway:
            approval = await get(gateway, approval_id)
        if approval.outcome:
            closed.set()
            return
        self._screen.end_line()
        show(approval)
        request = await _question(approval, closed)
        if request is None:
            if not closed.is_set():
                note(
                    "\nno answer: the call waits, and this terminal still watches the turn; Ctrl-C detaches\n"
                    f"hint: answer it elsewhere: tyrum approvals show {approval_id}{flags(target)}"
                )
                closed.set()
            return
        async with connect(self._target()) as gateway:
            await resolve(gateway, request)
        closed.set()


async def _question(approval: Approval, closed: asyncio.Event) -> ResolveApprovalRequest | None:
    note("y: once; n: not at all; a: also calls like it, for 30 days")
    while True:
        line = await _read("Approve exactly this? [y/n/a] ", closed)
        if line is None:
            return None
        word = line.strip().lower()
        if answer := _APPROVALS.get(word):
            return ResolveApprovalRequest(
                approval_id=approval.approval_id, answer=answer, digest=approval.digest
            )
        if word in {"n", "no"}:
            reason = await _read("Reason, told to the agent (Enter for none): ", closed)
            return ResolveApprovalRequest(
                approval_id=approval.approval_id,
                answer=ANSWER_DENY,
                digest=approval.digest,
                reason=(reason or "").strip(),
            )
        note("only y, n or a answers; until then nothing runs")


async def _read(prompt: str, closed: asyncio.Event) -> str | None:
    """Read one line from the terminal; None at end of input or when the question is closed meanwhile."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    line: asyncio.Future[str] = loop.create_future()

    def ready() -> None:
        data = os.read(descriptor, 4096)
        if not line.done():
            line.set_result(data.decode(errors="replace"))

    termios.tcflush(descriptor, termios.TCIFLUSH)
    sys.stdout.write(prompt)
    sys.stdout.flush()
    loop.add_reader(descriptor, ready)
    ended = loop.create_task(closed.wait())
    waiting: set[asyncio.Future[Any]] = {line, ended}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(descriptor)
        ended.cancel()
    if not line.done():
        print()
        return None
    return line.result() or None
