"""Commands that arguments name are told of, and what cannot be told is said to be unclear."""

import pytest

from tyrum_gateway.tools.inner import MOST_COMMANDS, inner_commands


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("bash", "-c", "rm -r a && cat b"), ["rm -r a", "cat b"]),
        (("sh", "-ec", "rm a"), ["rm a"]),
        (("/bin/bash", "--norc", "-o", "pipefail", "-c", "rm a", "name"), ["rm a"]),
        (("env", "-i", "-u", "HOME", "A=b", "rm", "a"), ["rm a"]),
        (("timeout", "-k", "5", "--signal=TERM", "10", "rm", "a"), ["rm a"]),
        (("nice", "-n", "5", "nohup", "rm", "a"), ["nohup rm a", "rm a"]),
        (("nice", "-5", "rm"), ["rm"]),
        (("find", ".", "-exec", "rm", "{}", ";", "-ok", "cat", "{}", "+"), ["rm {}", "cat {}"]),
        (("sudo", "-u", "root", "bash", "-c", "rm a"), ["bash -c rm a", "rm a"]),
        (("ls", "-l"), []),
        (("printf", "bash", "-c", "rm a"), []),
    ],
)
def test_literal_commands_are_named(words: tuple[str, ...], named: list[str]) -> None:
    """Through shells and wrappers, each command is listed once, with its words."""
    found = inner_commands([words])
    assert [" ".join(command) for _, command in found.commands] == named
    assert not found.unclear


@pytest.mark.parametrize(
    ("words", "named", "why"),
    [
        (("bash", "-c", "rm $(cat a)"), ["rm"], "the text of `bash -c`"),
        (("bash", "-c", "eval x"), [], "the text of `bash -c`"),
        (("xargs", "-n", "1", "rm", "-f"), ["rm -f"], "adds arguments"),
        (("env", "-S", "rm a"), [], "splits its text"),
        (("env", "--split-string=rm a"), [], "splits its text"),
        (("timeout", "--made-up", "rm", "a"), [], "which command `timeout` starts, because of `--made-up`"),
        (("bash",), [], "standard input"),
        (("nice", "sh", "job"), ["sh job"], "stands in a file"),
        (("timeout", "5", "python3", "-c", "x"), ["python3 -c x"], "`python3` may start"),
        (("nice",) * 50 + ("rm",), None, "too deep"),
    ],
)
def test_what_cannot_be_told_is_unclear(words: tuple[str, ...], named: list[str] | None, why: str) -> None:
    """Text that is more than literal, added arguments, files and unknown options are said to be unclear."""
    found = inner_commands([words])
    if named is not None:
        shown = [" ".join(command) for _, command in found.commands]
        assert shown[: len(named)] == named or set(named) <= {text.split()[0] for text in shown}
    assert any(why in text for text in found.unclear), found


def test_a_question_is_bounded() -> None:
    """Of many inner commands the first are listed, and how many more there are."""
    found = inner_commands([("bash", "-c", "\n".join(f"rm {number}" for number in range(MOST_COMMANDS + 3)))])
    assert len(found.commands) == MOST_COMMANDS
    assert found.unclear[-1] == "3 more commands are named in the arguments"
