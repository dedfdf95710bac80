"""Text of models, providers and commands, drawn on a terminal.

Invariants: such text is shown, never obeyed: no control character, no mark that reorders and nothing
invisible gets through raw; blanks that could push text out of place are counted in words. Drawn by `drawn` or
`hung`, no row of it is wider than the terminal, so that the terminal breaks none, and each row below the
first begins with a mark: `|` before text, `|>` or `>` before what goes on from the row above. No line of ours
begins with these.
"""

import os
import re
import shutil
import sys
import unicodedata
from functools import cache
from typing import TextIO

MARGIN = "|  "
"""Begins a line of a text."""
CONTINUED = "|> "
"""Begins a row that goes on from the one above."""

_NARROWEST = 20
_PROSE_RUN = 16
"""Blanks in a row that prose may have: code is indented and columns are filled."""
_SAME = 4
"""From so many on, equal escapes in a row are counted."""
_STACKED = 3
"""Marks that may stand over one letter."""

_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef]"
)
"""Letters, marks and symbols of which nothing is seen, although Unicode counts them as printable."""


def visible(text: str) -> str:
    r"""Make prose safe: what a terminal would obey becomes its escape, such as `\x1b`; lines stay lines.

    Kinds of blanks become blanks, more than 16 in a row their number; an emoji keeps its selector.
    """
    if text.isascii() and text.isprintable() and " " * _PROSE_RUN not in text:
        return text
    return "\n".join(_prose(line) for line in text.replace("\r\n", "\n").split("\n"))


def visible_line(text: str) -> str:
    r"""Make a value safe: on one line, every blank but a single space counted or escaped.

    Letters that are written from right to left are escaped, too: they would reorder what stands beside them.
    """
    if text.isascii() and text.isprintable() and "  " not in text:
        return text
    return _blanks(_escaped(text, _hides_in_line), 1)


def shortened(text: str, limit: int) -> str:
    """Make text a visible line of at most `limit` cells; one that was cut ends in an ellipsis."""
    line = visible_line(text)
    return line if cells(line) <= limit else _cut(line, limit - 1)[0] + "…"


def drawn(text: str, stream: TextIO | None = None) -> list[str]:
    """Draw text of several lines as rows with a margin; only a terminal has a width to keep."""
    room = width(stream)
    rows = []
    for line in visible(text).expandtabs().split("\n"):
        rows += _rows(line, room, MARGIN, CONTINUED)
    return rows


def hung(first: str, value: str, indentation: int = 4, stream: TextIO | None = None) -> str:
    """Draw a value behind words of ours; rows that go on below are indented and marked.

    Args:
        first: Words of ours, with the blank behind them.
        value: The value, already a visible line.
        indentation: Cells before the text of the rows below, at least 2.
        stream: Where it will be written; stdout by default.
    """
    return "\n".join(_rows(value, width(stream), first, " " * (indentation - 2) + "> "))


def width(stream: TextIO | None = None) -> int:
    """Count the columns of the terminal behind a stream (stdout by default); 0 where no terminal is.

    What the terminal itself says comes before `COLUMNS`: rows that it breaks could be forged.
    """
    stream = sys.stdout if stream is None else stream
    if not stream.isatty():
        return 0
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return max(columns or shutil.get_terminal_size().columns, _NARROWEST)


def cells(text: str) -> int:
    """Count the cells that visible text needs at most: a mark over a letter counts, too."""
    return len(text) if text.isascii() else sum(_cell(character) for character in text)


def _rows(line: str, room: int, first: str, further: str) -> list[str]:
    rows = []
    lead, rest = first, line
    while room and cells(lead) + cells(rest) > room:
        space = room - cells(lead)
        part, rest = _cut(rest, space) if space > 0 else ("", rest)
        # At a blank, unless the word behind it is longer than a row.
        at = part.rfind(" ")
        if at > 0 and cells((part[at + 1 :] + rest).partition(" ")[0]) + cells(further) <= room:
            part, rest = part[: at + 1], part[at + 1 :] + rest
        rows.append(lead + part)
        lead = further
    return [*rows, lead + rest]


def _cut(text: str, limit: int) -> tuple[str, str]:
    if text.isascii():
        return text[:limit], text[limit:]
    taken = 0
    for at, character in enumerate(text):
        taken += _cell(character)
        if taken > limit:
            return text[:at], text[at:]
    return text, ""


@cache
def _cell(character: str) -> int:
    # Ambiguous ones are wide in terminals for East Asia; too narrow a row does no harm.
    wide = unicodedata.east_asian_width(character) in "WFA" or unicodedata.category(character) == "So"
    return 2 if wide and not character.isascii() else 1


def _prose(line: str) -> str:
    return _blanks(_escaped(line, _hides), _PROSE_RUN)


def _escaped(text: str, hides: "_Hides") -> str:
    """Escape characters one by one, and count equal ones in a row."""
    shown: list[str] = []
    stacked = 0
    at = 0
    while at < len(text):
        character = text[at]
        mark = unicodedata.category(character) in {"Mn", "Me"}
        stacked = stacked + 1 if mark else 0
        before = text[at - 1] if at else ""
        if stacked <= _STACKED and not (form := hides(character, before)):
            shown.append(character)
            at += 1
            continue
        form = hides(character, "") or _code(character)
        end = at
        while end < len(text) and text[end] == character:
            end += 1
        same = end - at
        shown.append(f"[{same} x {form}]" if same >= _SAME and form != " " else form * same)
        at = end
    return "".join(shown)


class _Hides:
    """Tells the form in which a character is shown; empty when it shows itself."""

    def __init__(self, *, line: bool) -> None:
        self._line = line

    def __call__(self, character: str, before: str) -> str:
        if " " <= character <= "~":
            return ""
        if not self._line:
            if character == "\t":
                return ""
            if unicodedata.category(character) == "Zs":
                return " "
            if character == "\ufe0f" and before and unicodedata.category(before) == "So":
                return ""
        elif unicodedata.bidirectional(character) in {"R", "AL", "AN"}:
            return _code(character)
        return "" if character.isprintable() and not _BLANK.match(character) else _code(character)


_hides = _Hides(line=False)
_hides_in_line = _Hides(line=True)


def _blanks(text: str, most: int) -> str:
    """Count runs of more blanks than may stand."""
    if most == 1:
        return re.sub(" {2,}", _counted, text)
    return re.sub(rf" {{{most + 1},}}|\t{{{_SAME},}}|(?=[ \t]*\t)[ \t]{{{_SAME},}}", _counted, text)


def _counted(run: re.Match[str]) -> str:
    tabs = run[0].count("\t")
    if not tabs:
        return f"[{len(run[0])} spaces]"
    return f"[{len(run[0])} {'tabs' if tabs == len(run[0]) else 'spaces and tabs'}]"


def _code(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
