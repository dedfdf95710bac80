"""Writes pieces of a turn to stdout. Invariant: a notice begins on a line of its own; text is sanitised."""

import sys
from collections.abc import Iterable
from typing import assert_never

from tyrum_gateway.cli.output import styled
from tyrum_gateway.cli.projection import Answered, Asked, Notice, Piece, Text
from tyrum_gateway.cli.terminal import visible


class Screen:
    """Keeps track of whether the last line is open."""

    def __init__(self) -> None:
        self._open = False

    def show(self, pieces: Iterable[Piece]) -> None:
        """Write pieces in order."""
        for piece in pieces:
            match piece:
                case Text(text):
                    if text:
                        sys.stdout.write(visible(text))
                        sys.stdout.flush()
                        self._open = not text.endswith("\n")
                case Notice(text):
                    self.notice(text)
                case Asked() | Answered():
                    pass
                case _:
                    assert_never(piece)

    def notice(self, text: str) -> None:
        """Write a line about what happens."""
        self.end_line()
        styled(text, "dim")

    def end_line(self) -> None:
        """End an open line."""
        if self._open:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._open = False
