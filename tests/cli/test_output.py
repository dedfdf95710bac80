"""Tables on a terminal: what is copied from them is whole."""

import io

import pytest

from tyrum_gateway.cli.output import table

IDENTIFIER = "appr_01m8q2pf3ksvam6nhxzt6qphp2"
ROW = (IDENTIFIER, "waiting", "operator", "2026-11-30 20:35:15Z", "touch a file with a long name")


class Screen(io.StringIO):
    """Takes what is written for a terminal's."""

    def isatty(self) -> bool:
        """Tell that a human reads it."""
        return True


@pytest.mark.parametrize("columns", [20, 80, 120])
def test_a_row_stays_on_one_line(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """However narrow the terminal, no id is folded over two lines."""
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    for name, value in (("COLUMNS", str(columns)), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    table(("APPROVAL", "STATE", "FOR", "EXPIRES", "WHAT"), [ROW])
    _, row = screen.getvalue().splitlines()
    assert row.rstrip() == "  ".join(ROW)
