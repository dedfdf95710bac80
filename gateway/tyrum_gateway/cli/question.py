"""Reads answers of a human at the terminal.

Invariants: nothing typed before a question is shown answers it; Ctrl-C ends the question at once, because the
loop that reads is the one that the interruption cancels.
"""

import asyncio
import os
import sys
from typing import Any

from tyrum_gateway.cli.output import note
from tyrum_gateway.cli.screen import Screen

_LINE = 4096
_YES = frozenset({"y", "yes"})
_NO = frozenset({"", "n", "no"})


async def read_line(
    prompt: str, closed: asyncio.Event | None = None, screen: Screen | None = None
) -> str | None:
    """Read one line from the terminal; None at end of input or when the question is closed meanwhile.

    The screen, where others write to it too, keeps the question below what they write.
    """
    screen = screen or Screen()
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    line: asyncio.Future[str] = loop.create_future()

    def ready() -> None:
        data = os.read(descriptor, _LINE)
        if not line.done():
            line.set_result(data.decode(errors="replace"))

    screen.ask(prompt)
    loop.add_reader(descriptor, ready)
    ended = loop.create_task((closed or asyncio.Event()).wait())
    waiting: set[asyncio.Future[Any]] = {line, ended}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(descriptor)
        ended.cancel()
        if line.done() and line.result().endswith("\n"):
            screen.entered()
        else:
            screen.withdraw()
    return (line.result() or None) if line.done() else None


async def confirmed(prompt: str) -> bool:
    """Ask until the answer is yes or no; Enter and the end of input are no."""
    while True:
        line = await read_line(f"{prompt} [y/N]: ")
        word = "" if line is None else line.strip().lower()
        if word in _YES | _NO:
            return word in _YES
        note("only y or n answers; until then nothing is answered")
