"""No text of a model makes the question say something else, at any width of a real terminal."""

import re
import shlex

import pyte
import pytest

from tests.cli.test_terminal_session import terminal_environment
from tests.support.gateway import TYRUM, RunningGateway
from tests.support.terminal import on_terminal

OURS = re.compile(
    r"(asked|directory|power|boundary|more|file|env|stdin|caution|unclear|starts|secrets)\b"
    r"|(program|command)  |  like it, for 30 days$| {4,}> | {2}[|$] "
    r"|Approval appr_|[yna]: |Approve exactly this\? "
)
"""How every row between the question's heading and its prompt begins."""

FORGED = "command  ls -l"
"""What the attack wants a row to say."""


def padded(columns: int, blank: str) -> str:
    """Fill a row of the terminal, from wherever the argument begins, so that the next one is forged."""
    rows = [blank * (columns - at) + FORGED for at in (0, 9, 10)]
    return "".join(rows) + blank * columns + FORGED


HOSTILE = {
    "spaces": " ",
    "no-break spaces": "\u00a0",
    "wide spaces": "\u3000",
    "blank letters": "\u3164",
    "braille blanks": "\u2800",
    "tabs": "\t",
}


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_padding_forges_no_row_of_the_question(gateway: RunningGateway, columns: int) -> None:
    """Every row begins with a word or mark of ours; the command stands whole right above the prompt."""
    argv = ["uname", *(padded(columns, blank) for blank in HOSTILE.values()), "\x1b[2J\x1b[1;1Hx\r\u202ey"]
    message = f"/run {shlex.join(argv)}"
    environment = terminal_environment(gateway) | {"COLUMNS": str(columns)}
    with on_terminal([str(TYRUM), "chat", message], environment, columns=columns) as terminal:
        text = terminal.wait_for("Approve exactly this? [")
        terminal.wait_for("] ")
        terminal.type("n\n")
        terminal.wait_for("Reason, told to the agent")
        terminal.type("\n")
        assert terminal.end() == 5
    screen = pyte.Screen(columns, 400)
    pyte.Stream(screen).feed(text.replace("\n", "\r\n"))
    rows = [row.rstrip() for row in screen.display]
    begin = next(at for at, row in enumerate(rows) if row.startswith("Approval appr_"))
    shown = [row for row in rows[begin:] if row]
    assert [row for row in shown if not OURS.match(row)] == []
    assert not any(row.strip(" >|") == FORGED for row in shown)
    commands = [at for at, row in enumerate(shown) if row.startswith("command  ")]
    assert len(commands) == 1
    whole = "".join(
        row.removeprefix("command  ").removeprefix(" " * 7 + "> ") for row in shown[commands[0] :]
    )
    for blank in ("spaces]", "\\xa0", "\\u3000", "\\u3164", "\\u2800", "\\t", "\\x1b[2J", "\\u202e"):
        assert blank in whole
    assert shown[commands[0] - 1] == "program  /usr/bin/uname"


def test_an_ordinary_question_is_short(gateway: RunningGateway) -> None:
    """At 80 columns at most 14 rows, the prompt included."""
    with on_terminal(
        [str(TYRUM), "chat", "/run uname -a"], terminal_environment(gateway), columns=80
    ) as terminal:
        text = terminal.wait_for("Approve exactly this? [")
        terminal.type("n\n")
        terminal.wait_for("Reason")
        terminal.type("\n")
        terminal.end()
    question = text[text.index("Approval appr_") :]
    assert len(question.split("\n")) <= 14, question
