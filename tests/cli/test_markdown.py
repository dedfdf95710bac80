"""Markdown of models on a terminal: shown once, whole, and never obeyed."""

import asyncio
import re
import sys

import pytest

from tyrum_gateway.cli import busy
from tyrum_gateway.cli.markdown import Blocks, render
from tyrum_gateway.cli.projection import Text
from tyrum_gateway.cli.screen import Screen
from tyrum_gateway.cli.terminal import visible

TEXT = """# A title
A *soft* and **strong** `word`,
see [the guide](https://evil.example/?x=\\e).

1. one

   more of one
2. two

```sh
echo one

echo two
```
> quoted
"""


def rendered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str) -> str:
    """Render one block on a terminal with colours."""
    for name, value in (("COLUMNS", "60"), ("TERM", "xterm-256color"), ("FORCE_COLOR", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    render(text)
    return capsys.readouterr().out


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_blocks_do_not_depend_on_how_the_text_was_cut(size: int) -> None:
    """Whatever the pieces, the same blocks come out, and together they are the text."""
    blocks = Blocks()
    found = [block for at in range(0, len(TEXT), size) for block in blocks.feed(TEXT[at : at + size])]
    rest = blocks.rest()
    assert [block.split("\n")[0] for block in found] == ["# A title", "1. one", "```sh"]
    assert "\n".join([*found, rest]).split() == TEXT.split()
    assert found[2].endswith("echo two\n```")
    assert rest == "> quoted\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[bank](https://evil.example/a)", "bank (https://evil.example/a)"),
        ("a <!-- hidden --> <b>b</b>", "a <!-- hidden --> <b>b</b>"),
        ("<div>html</div>", "<div>html</div>"),
        ("[x]: https://evil.example", "[x]: https://evil.example"),
        ("&#x202e;gpj &#x9b;2J", "&#x202e;gpj &#x9b;2J"),
        ("\x1b[2J\x1b]8;;https://evil.example\x07here", "\\x1b[2J\\x1b]8;;https://evil.example\\x07here"),
        ("one  \ntwo\nthree", "one\ntwo\nthree"),
    ],
)
def test_nothing_is_hidden_or_obeyed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, shown: str
) -> None:
    """Targets, HTML, references and entities are seen as they were written; styles are the only escapes."""
    out = rendered(monkeypatch, capsys, text)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert plain == shown + "\n"
    assert visible(plain) == plain


def test_a_question_stays_below_what_comes_meanwhile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A notice or text of another call stands above an open question, which is drawn again until it ends."""
    forgotten: list[int] = []
    monkeypatch.setattr("termios.tcflush", lambda _file, queue: forgotten.append(queue))
    monkeypatch.setattr("sys.stdin.fileno", lambda: 0, raising=False)
    screen = Screen()
    screen.ask("Really? [y/n] ")
    screen.notice("[process.run finished] succeeded")
    screen.show([Text("text")])
    screen.withdraw("withdrawn")
    screen.notice("[later]")
    told = capsys.readouterr()
    assert told.out == (
        "Really? [y/n] \n[process.run finished] succeeded\nReally? [y/n] \ntext\nReally? [y/n] \n[later]\n"
    )
    assert told.err == "withdrawn\n"
    assert len(forgotten) == 4, "what was typed is forgotten each time"


def test_seconds_are_shown_while_something_works_and_leave_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal a line says what works and for how long; it is gone before anything else is written."""
    monkeypatch.setattr(busy, "_PATIENCE", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    async def wait() -> str:
        line = busy.Busy()
        line.begin("process.run runs")
        shown = ""
        async with asyncio.timeout(40):
            while "process.run runs" not in shown:
                await asyncio.sleep(0)
                shown += capsys.readouterr().err
        assert re.search(r"runs (\x1b\[2m)?\d+ s", shown)
        line.end()
        return capsys.readouterr().err

    assert asyncio.run(wait()).endswith("\x1b[2K"), "the line is erased"
