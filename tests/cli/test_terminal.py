"""Text of models, commands and providers is shown, never obeyed."""

import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tyrum_gateway.cli.projection import Notice, Text
from tyrum_gateway.cli.screen import Screen
from tyrum_gateway.cli.terminal import shortened, visible, visible_line


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
    assert shortened("\x1b" * 10, 8) == "\\x1b\\x1…"
    assert shortened("short", 8) == "short"


def test_letters_that_show_nothing_are_seen_on_a_line() -> None:
    """Two calls that differ in a blank letter do not look the same in a list."""
    assert visible_line("touch a\u3164\u00ad\u2800") == "touch a\\u3164\\xad\\u2800"
    assert visible_line("Größe ☀\ufe0f 你好") == "Größe ☀\ufe0f 你好"
