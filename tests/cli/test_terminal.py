"""Text of models, commands and providers is shown, never obeyed."""

import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tyrum_gateway.cli.projection import Notice, Text
from tyrum_gateway.cli.screen import Screen
from tyrum_gateway.cli.terminal import CONTINUED, MARGIN, cells, drawn, hung, shortened, visible, visible_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;owned\x07", "\\x1b[2J\\x1b]0;owned\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("safe\rrm -rf /", "safe\\rrm -rf /"),
        ("ab\x08\x7f", "ab\\x08\\x7f"),
        ("evil\u202egpj", "evil\\u202egpj"),
        ("a\u200bb\u2066c", "a\\u200bb\\u2066c"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("zwei\n\tZeilen, Größe 5 µm, 你好", "zwei\n\tZeilen, Größe 5 µm, 你好"),
    ],
)
def test_control_characters_become_escapes(text: str, shown: str) -> None:
    """Escape sequences, carriage returns and reordering marks are written out; other text is left alone."""
    assert visible(text) == shown


@settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.text())
def test_nothing_a_terminal_obeys_gets_through(text: str) -> None:
    """Whatever the text, what is printed holds no control character but line feed and tab."""
    assert not [
        character
        for character in visible(text)
        if unicodedata.category(character) == "Cc" and character not in "\n\t"
    ]
    assert "\n" not in visible_line(text)
    assert "\t" not in visible_line(text)


def test_a_turn_reaches_the_screen_as_text_only(capsys: pytest.CaptureFixture[str]) -> None:
    """Generated text and notices are written out escaped, whatever the model puts into them."""
    Screen().show([Text("a\x1b[2Jb"), Notice("c\x9b31md"), Text("e\rf")])
    assert capsys.readouterr().out == "a\\x1b[2Jb\nc\\x9b31md\ne\\rf"


def test_shortened_text_fits_and_says_that_it_was_cut() -> None:
    """A long value keeps its column's width, escapes included, and ends in an ellipsis."""
    assert shortened("\x1b\x1c\x1d", 8) == "\\x1b\\x1…"
    assert shortened("short", 8) == "short"


def test_letters_that_show_nothing_are_seen_on_a_line() -> None:
    """Two calls that differ in a blank letter do not look the same in a list."""
    assert visible_line("touch a\u3164\u00ad\u2800") == "touch a\\u3164\\xad\\u2800"
    assert visible_line("Größe ☀ 你好") == "Größe ☀ 你好"


@pytest.mark.parametrize(
    ("text", "prose", "line"),
    [
        ("a" + " " * 37 + "b", "a[37 spaces]b", "a[37 spaces]b"),
        ("    indented", "    indented", "[4 spaces]indented"),
        ("a" + "\t" * 9 + "b", "a[9 tabs]b", "a[9 x \\t]b"),
        ("a\t \t \tb", "a[5 spaces and tabs]b", "a\\t \\t \\tb"),
        ("a" + "\u2003" * 20 + "b", "a[20 spaces]b", "a[20 x \\u2003]b"),
        ("a\u3000\u00a0b", "a  b", "a\\u3000\\xa0b"),
        ("a\u2028\u2029\ue000\u0378", "a\\u2028\\u2029\\ue000\\u0378", "a\\u2028\\u2029\\ue000\\u0378"),
        ("☀\ufe0f a\ufe0f\U000e0100", "☀\ufe0f a\\ufe0f\\U000e0100", "☀\\ufe0f a\\ufe0f\\U000e0100"),
        ("\u05d0 b", "\u05d0 b", "\\u05d0 b"),
        ("e" + "\u0301" * 9, "e" + "\u0301" * 3 + "[6 x \\u0301]", "e" + "\u0301" * 3 + "[6 x \\u0301]"),
        ("one\r\ntwo", "one\ntwo", "one\\r\\ntwo"),
    ],
)
def test_blanks_are_counted_and_what_is_unseen_is_escaped(text: str, prose: str, line: str) -> None:
    """Padding of any kind is told in words; a value takes no kind of blank but the single space."""
    assert visible(text) == prose
    assert visible_line(text) == line


@settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.text(), st.sampled_from([20, 40, 80]))
def test_rows_fit_and_each_is_marked(text: str, columns: int) -> None:
    """No text makes a row that the terminal would break, or one that begins as ours; nothing is left out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tyrum_gateway.cli.terminal.width", lambda _stream: columns)
        rows, value = drawn(text), hung("name: ", visible_line(text))
    assert all(cells(row) <= columns and row.startswith((MARGIN, CONTINUED)) for row in rows)
    assert (
        "\n".join(row[3:] if row.startswith(MARGIN) else f"\0{row[3:]}" for row in rows).replace("\n\0", "")
        == visible(text).expandtabs()
    )
    first, *further = value.split("\n")
    assert first.startswith("name: ")
    assert all(cells(row) <= columns and row.startswith("  > ") for row in further)
    assert "".join([first[6:], *(row[4:] for row in further)]) == visible_line(text)
