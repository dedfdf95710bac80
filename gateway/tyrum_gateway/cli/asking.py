"""Asks the human at the terminal about approvals.

Invariants: nothing typed before a question is shown answers it; what is approved is the digest that was
shown; an answer from elsewhere ends the question; no answer leaves the approval waiting; only what the
gateway would take is offered.
"""

import asyncio
from collections.abc import Callable

from tyrum.approval.v1.approval_pb2 import (
    ANSWER_APPROVE,
    ANSWER_APPROVE_ALWAYS,
    ANSWER_DENY,
    Approval,
    ResolveApprovalRequest,
)
from tyrum_gateway.cli.approval_client import get, resolve
from tyrum_gateway.cli.approval_view import ask
from tyrum_gateway.cli.connection import Target, connect, flags
from tyrum_gateway.cli.failure import ExitCode, Failure, report
from tyrum_gateway.cli.output import note
from tyrum_gateway.cli.question import read_line
from tyrum_gateway.cli.screen import Screen

_RETRY = 0.5
_WORDS = {"yes": "y", "no": "n", "always": "a"}
_ANSWERS = {"y": ANSWER_APPROVE, "n": ANSWER_DENY, "a": ANSWER_APPROVE_ALWAYS}
_MEANINGS = {"y": "once", "n": "not at all", "a": "also calls like it, for 30 days"}


class Desk:
    """Takes approvals in order and asks about one at a time."""

    def __init__(self, target: Callable[[], Target], screen: Screen) -> None:
        self._target = target
        self._screen = screen
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._closed: dict[str, asyncio.Event] = {}
        self._asked = ""

    def ask(self, approval_id: str) -> None:
        """Put an approval into the queue, once."""
        if approval_id in self._closed:
            return
        self._closed[approval_id] = asyncio.Event()
        self._waiting.put_nowait(approval_id)

    def answered(self, approval_id: str, how: str) -> None:
        """Note that an approval has an outcome: its question ends, and says why when it is open."""
        if closed := self._closed.get(approval_id):
            closed.set()
        if approval_id == self._asked:
            self._screen.withdraw(f"question withdrawn: {approval_id} is {how}")

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            approval_id = await self._waiting.get()
            closed = self._closed[approval_id]
            while not closed.is_set():
                try:
                    await self._one(approval_id, closed)
                except Failure as failure:
                    if failure.code is ExitCode.NOT_AUTHORIZED:
                        self._leave(approval_id, closed, failure.message)
                        continue
                    report(failure)
                    await asyncio.sleep(_RETRY)

    async def _one(self, approval_id: str, closed: asyncio.Event) -> None:
        try:
            async with connect(self._target()) as gateway:
                approval = await get(gateway, approval_id)
        except Failure as failure:
            if failure.code is not ExitCode.NOT_AUTHORIZED:
                raise
            self._leave(approval_id, closed, "answering needs the role `approver`")
            return
        if approval.outcome:
            closed.set()
            return
        self._screen.end_line()
        ask(approval)
        if approval.approve_barred and approval.deny_barred:
            self._leave(approval_id, closed, approval.approve_barred)
            return
        if approval.approve_barred:
            note(f"{approval.approve_barred}\n{self._others(approval_id)}")
        self._asked = approval_id
        request = await _question(approval, closed, self._screen)
        self._asked = ""
        if request is None:
            if not closed.is_set():
                note(
                    "no answer: the call waits, and this terminal still watches the turn; Ctrl-C detaches\n"
                    f"hint: answer it elsewhere: tyrum approvals show {approval_id}{flags(self._target())}"
                )
                closed.set()
            return
        async with connect(self._target()) as gateway:
            await resolve(gateway, request)
        closed.set()

    def _leave(self, approval_id: str, closed: asyncio.Event, why: str) -> None:
        """Leave the question to others, and say to whom."""
        self._screen.end_line()
        note(
            f"approval {approval_id} is not yours to answer: {why}\n"
            "the call waits, and this terminal still watches the turn; Ctrl-C detaches\n"
            f"{self._others(approval_id)}"
        )
        closed.set()

    def _others(self, approval_id: str) -> str:
        return (
            "hint: somebody else with the role approver: "
            f"tyrum approvals approve {approval_id}{flags(self._target(), caller=False)}"
        )


async def _question(
    approval: Approval, closed: asyncio.Event, screen: Screen
) -> ResolveApprovalRequest | None:
    barred = {"y": approval.approve_barred, "n": approval.deny_barred, "a": approval.always_barred}
    offered = [key for key, why in barred.items() if not why]
    note("; ".join(f"{key}: {_MEANINGS[key]}" for key in offered))
    asked = "Approve exactly this?" if "y" in offered else "Deny this?"
    while True:
        line = await read_line(f"{asked} [{'/'.join(offered)}] ", closed, screen)
        if line is None:
            return None
        word = line.strip().lower()
        key = _WORDS.get(word, word)
        if key in offered:
            break
        note(barred.get(key) or f"only {_listed(offered)} answers; until then nothing runs")
    request = ResolveApprovalRequest(
        approval_id=approval.approval_id, answer=_ANSWERS[key], digest=approval.digest
    )
    if key == "n":
        reason = await read_line("Reason, told to the agent (Enter for none): ", closed, screen)
        if closed.is_set():
            return None
        request.reason = (reason or "").strip()
    return request


def _listed(keys: list[str]) -> str:
    return " or ".join(part for part in (", ".join(keys[:-1]), keys[-1]) if part)
