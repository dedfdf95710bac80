"""Messages for people: they name the command as it was called, and wrap at words on a terminal.

Invariants: what goes on below itself is indented, so that no message can look like the beginning of another;
a command in it stays whole, to be copied.
"""

import re
import shlex
import shutil
import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import TextIO

NAME = "tyrum"
"""The command as it is written in this program's messages."""

_COMMAND = re.compile(r"(?<![\w./-])tyrum(?: [^\s;,()`]+)+")
_JOINED = "\0"
"""Stands for a blank at which no line ends; `visible` leaves none in a text."""


@cache
def called() -> str:
    """Return what has to be typed to call this command again: its path, unless the shell finds it by name."""
    typed = sys.argv[0] if sys.argv else ""
    if Path(typed).name != NAME:  # another program that runs a command of ours
        return NAME
    found = shutil.which(NAME)
    named = found is not None and Path(typed).exists() and Path(found).samefile(typed)
    return NAME if named else shlex.quote(typed)


def told(text: str, stream: TextIO, *, indentation: int = 2) -> str:
    """Write a message for a stream: on a terminal it is wrapped, lines that follow are indented."""
    text = _COMMAND.sub(lambda found: called() + found[0][len(NAME) :], text)
    if not stream.isatty():
        return text
    return wrapped(text, indentation)


def wrapped(text: str, indentation: int, *, first: int = 0) -> str:
    """Wrap text at words to the width of the terminal.

    Args:
        text: The text; its own ends of lines stay.
        indentation: Blanks before the lines that go on below.
        first: Cells of the first line that are taken already.
    """
    width = max(shutil.get_terminal_size().columns, indentation + 20)
    lines = []
    for line in text.split("\n"):
        if first + len(line) <= width:
            lines.append(line)
            continue
        joined = _command().sub(lambda found: found[0].replace(" ", _JOINED), line)
        parts = textwrap.wrap(
            joined,
            width,
            initial_indent=" " * first,
            subsequent_indent=" " * indentation,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        )
        lines.append("\n".join(parts)[first:].replace(_JOINED, " "))
    return "\n".join(lines)


@cache
def _command() -> re.Pattern[str]:
    return re.compile(rf"(?<![\w./-]){re.escape(called())}(?: [^\s;,()`]+)+")
