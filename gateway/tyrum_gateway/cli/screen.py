"""Writes pieces of a turn to stdout.

Invariants: a notice begins on a line of its own; text is sanitised; what comes while a question is open
stands above it, and the question is then drawn again, without what was typed at the one before.
"""

import sys
import termios
from collections.abc import Callable, Iterable
from functools import partial
from typing import assert_never

from tyrum_gateway.cli.busy import Busy
from tyrum_gateway.cli.markdown import Blocks, render, renders
from tyrum_gateway.cli.output import counted, note, styled
from tyrum_gateway.cli.projection import Answered, Asked, Notice, Output, Piece, Text
from tyrum_gateway.cli.terminal import drawn, visible

_INDENTATION = 4

FOLDED = 20
"""Rows of a command's output that are shown: the first, the last, and one that counts the others."""
_HEAD = 12

_COLOURS = {"allowed": "green", "waiting": "yellow", "denied": "red", "failed": "bold red"}


class Screen:
    """Keeps track of whether the last line is open, and of the question in it."""

    def __init__(self, *, full: bool = False) -> None:
        self._full = full
        self._open = False
        self._question = ""
        self._blocks = Blocks() if renders() else None
        self._after_block = False
        self._busy = Busy()

    def show(self, pieces: Iterable[Piece]) -> None:
        """Write pieces in order."""
        for piece in pieces:
            match piece:
                case Text(text):
                    self._text(text)
                case Notice(text, tone):
                    self.notice(text, tone)
                case Output(text):
                    self._line(partial(self._printed, text))
                case Asked() | Answered():
                    pass
                case _:
                    assert_never(piece)

    def notice(self, text: str, tone: str = "") -> None:
        """Write a line about what happens, in the colour of how it stands."""
        self._line(partial(styled, text, _COLOURS.get(tone, "dim"), indentation=_INDENTATION))

    def tell(self, text: str) -> None:
        """Write a line to stderr."""
        self._line(lambda: note(text))

    def end_line(self) -> None:
        """End an open line or block, and what says that something is waited for."""
        if self._blocks is not None and (rest := self._blocks.rest()).strip():
            self._close()
            self._block(rest)
        self._after_block = False
        self._close()

    def waits_for(self, what: str) -> None:
        """Say that something takes its time, unless a question or an unfinished line stands there."""
        if not self._open:
            self._busy.begin(what)

    def ask(self, question: str) -> None:
        """Draw a question; nothing that was typed before it answers it."""
        self.end_line()
        _forget_typed()
        sys.stdout.write(question)
        sys.stdout.flush()
        self._open, self._question = True, question

    def entered(self) -> None:
        """Note that Enter ended the line of the question."""
        self._open, self._question = False, ""

    def withdraw(self, why: str = "") -> None:
        """End an open question that gets no answer, and say why."""
        if self._question:
            self._question = ""
            _forget_typed()
            self.end_line()
            if why:
                note(why)

    def _line(self, write: Callable[[], None]) -> None:
        self._above(write, before=self.end_line)

    def _above(self, write: Callable[[], None], *, before: Callable[[], None]) -> None:
        """Write above an open question."""
        question, self._question = self._question, ""
        before()
        write()
        if question:
            self.ask(question)

    def _close(self) -> None:
        self._busy.end()
        if self._open:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._open = False

    def _text(self, text: str) -> None:
        if self._blocks is not None:
            for block in self._blocks.feed(text):
                self._above(partial(self._block, block), before=self._close)
        elif text:
            self._above(partial(self._plain, text), before=self._close if self._question else self._busy.end)

    def _plain(self, text: str) -> None:
        sys.stdout.write(visible(text))
        sys.stdout.flush()
        self._open = not text.endswith("\n")

    def _printed(self, text: str) -> None:
        """Write what a command printed, folded unless all of it is wanted."""
        rows = drawn(text.removesuffix("\n"))
        if not self._full and len(rows) > FOLDED:
            left_out = len(rows) - FOLDED + 1
            fold = f"   [… {counted(left_out, 'line')} left out; `tyrum conversations show --full` shows all]"
            rows = [*rows[:_HEAD], fold, *rows[left_out + _HEAD :]]
        print("\n".join(rows), flush=True)

    def _block(self, block: str) -> None:
        if self._after_block:
            print()
        render(block)
        self._after_block = True


def _forget_typed() -> None:
    """Discard what was typed, also on a line without its end."""
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
