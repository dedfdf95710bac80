"""Tables on a terminal: they fit, and what is copied from them is whole."""

import io
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.gateway import TYRUM, RunningGateway
from tyrum_gateway.cli import progress
from tyrum_gateway.cli.commands import run
from tyrum_gateway.cli.prose import told, wrapped
from tyrum_gateway.cli.tables import Cell, Column, table

IDENTIFIER = "appr_01m8q2pf3ksvam6nhxzt6qphp2"
ROW = (IDENTIFIER, "waiting", "operator", "2026-11-30 20:35:15Z", "touch a file with a long name")


class Screen(io.StringIO):
    """Takes what is written for a terminal's."""

    def isatty(self) -> bool:
        """Tell that a human reads it."""
        return True


def on_screen(monkeypatch: pytest.MonkeyPatch, columns: int) -> Screen:
    """Make stdout a terminal of some width without colours."""
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    for name, value in (("COLUMNS", str(columns)), ("TERM", "xterm"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    return screen


@pytest.mark.parametrize("columns", [20, 80, 120])
def test_a_row_stays_on_one_line(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """However narrow the terminal, no id is folded over two lines."""
    screen = on_screen(monkeypatch, columns)
    table(("APPROVAL", "STATE", "FOR", "EXPIRES", "WHAT"), [ROW])
    _, row = screen.getvalue().splitlines()
    assert row.rstrip() == "  ".join(ROW)


def test_columns_leave_a_narrow_terminal_and_words_are_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns leave in their order, one is shortened visibly, short forms are taken; `--wide` shows all."""
    columns = (
        Column("APPROVAL"),
        Column("STATE", leaves=2),
        Column("FOR", leaves=1),
        "EXPIRES",
        Column("WHAT", least=18),
    )
    row = (*ROW[:3], Cell(ROW[3], "20:35:15Z"), ROW[4])
    screen = on_screen(monkeypatch, 72)
    table(columns, [row])
    assert screen.getvalue().splitlines() == [
        "APPROVAL                         FOR       EXPIRES    WHAT",
        f"{IDENTIFIER}  operator  20:35:15Z  touch a file with…",
    ]
    screen = on_screen(monkeypatch, 72)
    table(columns, [row], wide=True)
    assert screen.getvalue().splitlines()[1] == "  ".join(ROW)


def test_every_list_fits_80_columns(monkeypatch: pytest.MonkeyPatch, gateway: RunningGateway) -> None:
    """No line of any list is longer than the terminal is wide, and every id stands whole."""
    told = gateway.tyrum("chat", "/run printf " + "long-word " * 20, "-o", "json")
    turn = json.loads(told.stdout)["turn_id"]
    lists = (
        ["approvals", "list", "--all"],
        ["runs", "list", "--totals"],
        ["runs", "show", turn],
        ["conversations", "list"],
        ["audit", "list"],
        ["principals", "list"],
        ["principals", "tokens", "list"],
        ["providers", "list"],
        ["policy", "overrides", "list", "--all"],
    )
    for words in lists:
        screen = on_screen(monkeypatch, 80)
        assert run([*words, "--state-dir", str(gateway.state_dir)]) == 0
        lines = screen.getvalue().splitlines()
        assert max(map(len, lines), default=0) <= 80, (words, lines)
        ids = re.findall(r"\b(?:appr|run|conv|over|turn)_(\w*)", screen.getvalue())
        assert {len(found) for found in ids} <= {26}, (words, lines)


def test_a_hint_names_the_command_as_it_was_called(tmp_path: Path) -> None:
    """By its path when that was typed, by its name alone when the shell finds that very file by it."""
    environment = os.environ | {"TYRUM_STATE_DIR": str(tmp_path)}
    relative = os.path.relpath(TYRUM, tmp_path)
    for typed, path, shown in (
        (relative, os.defpath, relative),
        ("tyrum", f"{TYRUM.parent}:{os.defpath}", "tyrum"),
    ):
        ran = subprocess.run(
            ["/bin/sh", "-c", f"{typed} aproval"],
            cwd=tmp_path,
            env=environment | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.stderr.endswith(f"hint: {shown} --help\n")


def test_prose_wraps_at_words_and_a_command_in_it_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes on below is indented; a command that is too long for its line has one of its own."""
    screen = on_screen(monkeypatch, 40)
    command = "tyrum policy overrides revoke over_01m8q2pf3ksvam6nhxzt6qphp2"
    assert told(f"hint: it is permitted until it ends; to end it now: {command}", screen).splitlines() == [
        "hint: it is permitted until it ends; to",
        "  end it now:",
        f"  {command}",
    ]
    assert told("two\nlines", screen) == "two\nlines"
    assert wrapped("one two three four five six seven", 8, first=8) == (
        "one two three four five six\n        seven"
    )


def test_long_work_shows_how_far_it_is_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stderr, when it is a terminal, shows what is done and how much; nothing else is written anywhere."""
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    drawn = {}
    for terminal, alone in ((Screen(), True), (io.StringIO(), True), (Screen(), False)):
        monkeypatch.setattr("sys.stderr", terminal)
        with progress.counting("rows", 200, alone=alone) as counter:
            assert list(counter.each(range(120))) == list(range(120))
        drawn[type(terminal), alone] = terminal.getvalue()
    assert re.search(r"rows .*\b(?:50|100)\b", drawn[Screen, True])
    assert drawn[io.StringIO, True] == drawn[Screen, False] == ""
