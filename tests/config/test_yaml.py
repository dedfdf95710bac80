"""How the text of a file becomes positioned values, and what is refused on the way."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.config.files import MINIMAL, lines, problems
from tyrum_gateway.config import ConfigProblems, check_file
from tyrum_gateway.config.document import MAX_BYTES, plain, read_document


def value_of(text: str) -> Any:
    """Read one plain or quoted scalar."""
    document = read_document(f"key: {text}\n".encode(), "f")
    assert not document.problems
    assert document.root is not None
    return plain(document.root)["key"]


@pytest.mark.parametrize("text", ["yes", "no", "on", "off", "Yes", "y", "1:30", "2026-01-02", "1_000", "0b1"])
def test_words_of_yaml_1_1_are_text(text: str) -> None:
    """What only YAML 1.1 takes for a boolean, number or date stays the text that was written."""
    assert value_of(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("-3", -3),
        ("1e3", 1000.0),
        ("true", True),
        ("~", None),
        ("'1'", "1"),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: object) -> None:
    """Plain scalars have the types of YAML 1.2; quoted ones are text."""
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


@pytest.mark.parametrize(
    ("word", "hint"),
    [("yes", " (in YAML 1.2 `yes`, `no`, `on` and `off` are text)"), ('"true"', "; remove the quotes")],
)
def test_a_word_of_yaml_1_1_and_text_are_no_boolean(tmp_path: Path, word: str, hint: str) -> None:
    """`yes` or quoted text where a boolean belongs is an error that says so, not true."""
    text = MINIMAL.replace(
        "rules: []", f"rules: [{{id: a, decision: deny, match: {{rest: {word}, argv: []}}}}]"
    )
    assert lines(tmp_path, text) == [
        f"7:59: policy.default.rules[0].match.rest: expected `true` or `false`, found text{hint}"
    ]


def test_duplicate_key_names_both_places_and_no_value(tmp_path: Path) -> None:
    """A key given twice is refused with both positions, and neither value shows."""
    text = MINIMAL + "approvals:\n  expiry: 1h\n  expiry: CANARY\n"
    (found,) = problems(tmp_path, text)
    assert (found.place.line, found.place.column, found.code) == (10, 3, "duplicate_key")
    assert found.message == "duplicate key, first at 9:3"


def test_duplicate_profile_is_not_silently_the_last(tmp_path: Path) -> None:
    """A profile declared twice is refused as two providers for one exclusive scope."""
    text = MINIMAL + "profiles:\n  isolation:\n    p: {provider: a}\n    p: {provider: b}\n"
    duplicate = [problem for problem in problems(tmp_path, text) if problem.code == "duplicate_key"]
    assert [problem.place.line for problem in duplicate] == [11]
    assert "exclusive" in duplicate[0].message
    assert "10:5" in duplicate[0].message


@pytest.mark.parametrize(
    ("text", "place", "code"),
    [
        pytest.param("a: &x 1\n", "1:4", "anchor", id="anchor"),
        pytest.param("a: 1\nb: *x\n", "2:4", "alias", id="alias"),
        pytest.param("a: 1\n<<: {b: 2}\n", "2:1", "merge_key", id="merge key"),
        pytest.param("a: !!python/object:os.system x\n", "1:4", "tag", id="tag"),
        pytest.param("a: !!str 1\n", "1:4", "tag", id="standard tag"),
        pytest.param("a: 1\n---\nb: 2\n", "2:1", "documents", id="second document"),
        pytest.param("%YAML 1.1\n---\na: yes\n", "2:1", "yaml_version", id="YAML 1.1"),
        pytest.param("a:\n\tb: 1\n", "2:1", "syntax", id="tab"),
        pytest.param("a: 'x\nb: 1\n", "1:4", "syntax", id="open quote"),
        pytest.param("a: [1, 2\nb: 1\n", "2:2", "syntax", id="open list"),
        pytest.param("a: b: c\n", "1:5", "syntax", id="two colons"),
        pytest.param("a: 1\n  b: 2\n", "2:4", "syntax", id="indentation"),
        pytest.param("1: a\n", "1:1", "key", id="number as key"),
        pytest.param("true: a\n", "1:1", "key", id="boolean as key"),
        pytest.param("[a]: b\n", "1:1", "key", id="list as key"),
        pytest.param("a: .nan\n", "1:4", "number", id="not a number"),
        pytest.param("a: 1e999\n", "1:4", "number", id="too large a number"),
        pytest.param("a: " + "9" * 5000 + "\n", "1:4", "number", id="thousands of digits"),
        pytest.param("- a\n", "1:1", "type", id="list at the top"),
        pytest.param("text\n", "1:1", "type", id="text at the top"),
        pytest.param("", "1:1", "empty", id="nothing"),
        pytest.param("# only a comment\n", "1:1", "empty", id="comment"),
        pytest.param('a: "\\ud800"\n', "1:4", "encoding", id="half a character"),
        pytest.param('"\\ud800": a\n', "1:1", "encoding", id="half a character as key"),
        pytest.param("a: b\x01\n", "1:5", "encoding", id="control character"),
        pytest.param("a: " + "x" * 70_000 + "\n", "1:1", "too_large", id="long line"),
    ],
)
def test_refused_yaml_is_placed(text: str, place: str, code: str) -> None:
    """Every refused construct is reported where it stands."""
    found = [(str(problem.place), problem.code) for problem in read_document(text.encode(), "f").problems]
    assert (place, code) in found


def test_tab_is_explained() -> None:
    """A tab used for indentation is named as such."""
    (found,) = read_document(b"a:\n\tb: 1\n", "f").problems
    assert found.message == "a tab cannot indent; use spaces"


def test_bad_utf8_is_placed() -> None:
    """A byte that is not UTF-8 is reported at its character position."""
    (found,) = read_document("a: é\nb: ü".encode() + b"\xff\n", "f").problems
    assert (str(found.place), found.code) == ("2:5", "encoding")


def test_byte_order_mark_and_crlf_are_accepted(tmp_path: Path) -> None:
    """A file saved by an editor on another system reads the same, positions included."""
    assert not lines(tmp_path, b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert lines(tmp_path, "\ufeff" + MINIMAL.replace("version: 1\n", "version: 2\r\n")) == [
        "1:10: version: this version of Tyrum reads `version: 1`"
    ]


ALIAS_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param(ALIAS_BOMB, "alias", id="alias bomb"),
        pytest.param("a: &a [*a]\n", "alias", id="recursive alias"),
        pytest.param("[" * 60_000, "too_deep", id="nested lists"),
        pytest.param("{a: " * 10_000, "too_deep", id="nested mappings"),
        pytest.param("? " * 30_000, "key", id="nested keys"),
        pytest.param("- " * 30_000, "too_deep", id="nested items"),
        pytest.param("- a\n" * 25_000, "too_large", id="many items"),
        pytest.param("a: !!" + "!" * 60_000, "tag", id="long tag"),
        pytest.param("x" * (MAX_BYTES + 1), "too_large", id="large file"),
    ],
)
def test_hostile_text_is_refused_in_bounded_time(text: str, code: str) -> None:
    """A text made to exhaust its reader is refused with a place, quickly."""
    begin = time.process_time()
    assert code in {problem.code for problem in read_document(text.encode(), "f").problems}
    assert time.process_time() - begin < 20


def test_what_is_refused_is_refused_once(tmp_path: Path) -> None:
    """An alias where text belongs is one problem: what it stands for is not judged as well."""
    text = MINIMAL.replace("policy: default}", "policy: *p, instructions: &i x}")
    assert lines(tmp_path, text) == [
        "5:37: agents.default.policy: aliases are not supported; write the value out",
        "5:55: agents.default.instructions: anchors are not supported; write the value out at each place",
    ]


@settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(
    st.binary(max_size=200) | st.text(alphabet="ab:-#&*!|>'\"[]{},?%@`<$ \n\t0~", max_size=60).map(str.encode)
)
def test_reading_never_raises(content: bytes) -> None:
    """Whatever the bytes, reading ends in a mapping or in a problem."""
    document = read_document(content, "f")
    assert document.root is not None or document.problems


@pytest.mark.parametrize("name", ["directory", "pipe", "missing", "device"])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    """A directory, pipe or device in the file's place is refused at once and never waited for."""
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    with pytest.raises(ConfigProblems) as caught:
        check_file(tmp_path / name, environment={})
    assert [problem.code for problem in caught.value.problems] == ["unreadable"]
