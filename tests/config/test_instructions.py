"""Instructions in a file of their own: read with the configuration, bounded, and placed when unusable."""

from pathlib import Path

import pytest

from tests.config.files import MINIMAL, lines, load

NAMED = MINIMAL.replace("policy: default}", "policy: default, instructions_file: agent.md}")
PLACE = "5:65: agents.default.instructions_file: "


def test_the_text_of_the_file_is_the_agents(tmp_path: Path) -> None:
    """A file as long as it may be is taken whole, from the configuration's directory, without a mark."""
    text = "é" * 32_767 + "\n"
    (tmp_path / "agent.md").write_text(text, encoding="utf-8-sig")
    assert load(tmp_path, NAMED).agents["default"].instructions == text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "this file cannot be read: No such file or directory", id="missing"),
        pytest.param(b"fine\nfine\nno \xff text", "this file is not UTF-8 (in its line 3)", id="not UTF-8"),
        pytest.param(
            b"x" * 32_769,
            "this file has more than 32,768 characters, the most that instructions may have",
            id="long",
        ),
        pytest.param(
            "é".encode() * 200_000,
            "this file has more than 32,768 characters, the most that instructions may have",
            id="far too long",
        ),
        pytest.param(b"a\0b", "this file holds a NUL character: it is no text", id="binary"),
    ],
)
def test_a_file_that_cannot_be_taken_is_placed(tmp_path: Path, content: bytes | None, message: str) -> None:
    """Each reason is told at the key, and no word of the file."""
    if content is not None:
        (tmp_path / "agent.md").write_bytes(content)
    assert lines(tmp_path, NAMED) == [PLACE + message]


def test_a_directory_and_both_keys_at_once_are_refused(tmp_path: Path) -> None:
    """What is no file is told like a missing one, and two texts leave open which counts."""
    (tmp_path / "agent.md").mkdir()
    both = NAMED.replace("policy: default,", "policy: default, instructions: x,")
    found = lines(tmp_path, both)
    assert sorted(line.split(": ", 2)[2] for line in found) == [
        "`instructions` is given besides: keep one of the two",
        "this file cannot be read: not a regular file",
    ]
