"""Tables of commands.

Invariants: on a terminal a row is one line that fits, made so by columns that leave and by one that is
shortened visibly, never by a word or an id that is broken; with `--wide`, and where no terminal is, every
column stands whole.
"""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tyrum_gateway.cli.output import moment, on_terminal, row
from tyrum_gateway.cli.terminal import visible_line

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

_GAP = "  "

Wide = Annotated[
    bool, typer.Option("--wide", "-w", help="Show every column whole, however wide the terminal is.")
]

Full = Annotated[
    bool, typer.Option("--full", help="Show all that is kept of what commands printed, not 20 lines of it.")
]


@dataclass(frozen=True, slots=True)
class Column:
    """A column and what it does where a terminal is too narrow for all of them."""

    name: str
    leaves: int = 0
    """Those with the highest number leave first; 0 stays."""
    least: int = 0
    """Width to which it may be shortened, 0 when it may not."""
    wraps: bool = False
    """It is prose, and the last column: it goes on below itself."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A value with a shorter form for narrow terminals."""

    full: str
    brief: str


def table(
    columns: Sequence[Column | str], rows: Iterable[Sequence[str | Cell]], *, wide: bool = False
) -> None:
    """Print rows under headers, aligned."""
    named = [Column(column) if isinstance(column, str) else column for column in columns]
    fitting = on_terminal() and not wide
    lines = [[_text(cell, brief=fitting) for cell in cells] for cells in rows]
    kept = list(range(len(named)))
    widths = [
        max(_width(text) for text in (column.name, *(line[at] for line in lines)))
        for at, column in enumerate(named)
    ]
    if fitting:
        filled = {at for line in lines for at, text in enumerate(line) if text}
        empty = {at for at, column in enumerate(named) if column.leaves and at not in filled}
        kept = _fit(named, widths, empty, shutil.get_terminal_size().columns)
    row(_line([named[at].name for at in kept], [widths[at] for at in kept]), "bold")
    for line in lines:
        _row([line[at] for at in kept], [widths[at] for at in kept], wraps=fitting and named[kept[-1]].wraps)
    sys.stdout.flush()


def when(timestamp: "Timestamp", *, never: str = "") -> Cell:
    """Write a time in UTC: to the second, or briefly the time of day today and the date on other days.

    `never` stands for a time that is not set.
    """
    full = moment(timestamp) or never
    day, _, time = full.partition(" ")
    return Cell(full, time if time and day == datetime.now(UTC).strftime("%Y-%m-%d") else day)


def _text(cell: str | Cell, *, brief: bool) -> str:
    if isinstance(cell, str):
        return visible_line(cell)
    return visible_line(cell.brief if brief else cell.full)


def _fit(columns: Sequence[Column], widths: list[int], empty: Set[int], room: int) -> list[int]:
    """Choose the columns that stay, and shorten `widths` of those that may be."""
    kept = [at for at in range(len(columns)) if at not in empty]

    def needed() -> int:
        least = (
            min(widths[at], columns[at].least or (20 if columns[at].wraps else widths[at])) for at in kept
        )
        return sum(least) + len(_GAP) * (len(kept) - 1)

    while needed() > room:
        leaving = max(kept, key=lambda at: columns[at].leaves)
        if not columns[leaving].leaves:
            break
        kept.remove(leaving)
    over = sum(widths[at] for at in kept) + len(_GAP) * (len(kept) - 1) - room
    for at in sorted(kept, key=lambda at: widths[at], reverse=True):
        least = columns[at].least or (20 if columns[at].wraps else widths[at])
        taken = max(0, min(over, widths[at] - least))
        widths[at] -= taken
        over -= taken
    return kept


def _row(texts: list[str], widths: list[int], *, wraps: bool) -> None:
    first, *further = (
        textwrap.wrap(texts[-1], widths[-1], break_long_words=False, break_on_hyphens=False) if wraps else ()
    ) or (texts[-1],)
    print(_line([*texts[:-1], first], widths, whole=wraps))
    indentation = " " * (sum(widths[:-1]) + len(_GAP) * (len(widths) - 1))
    for line in further:
        print(indentation + line)


def _line(texts: Sequence[str], widths: Sequence[int], *, whole: bool = False) -> str:
    cells = [
        text if whole and at == len(texts) - 1 else _sized(text, widths[at]) for at, text in enumerate(texts)
    ]
    return _GAP.join(cells).rstrip()


def _width(text: str) -> int:
    """Count the cells that a terminal needs."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - heavy, and seldom needed

    return cell_len(text)


def _sized(text: str, width: int) -> str:
    """Fill or shorten a line to a width; what was cut ends in an ellipsis."""
    if text.isascii():
        return text.ljust(width) if len(text) <= width else text[: width - 1] + "…"
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415 - heavy, and seldom needed

    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"
