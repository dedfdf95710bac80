"""`/run TEXT` becomes an argument vector only when a shell would read the same words."""

import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tyrum_gateway.models.directive import Command, ShellText, parse_run


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("/run uname -a", ("uname", "-a")),
        ("  /run   uname  ", ("uname",)),
        ("/run printf '%s|%s' a b", ("printf", "%s|%s", "a", "b")),
        ('/run printf "a b"', ("printf", "a b")),
        ("/run printf a\\ b\\;", ("printf", "a b;")),
        ("/run printf ''", ("printf", "")),
        ('/run printf "*?~#!"', ("printf", "*?~#!")),
    ],
)
def test_words_become_an_argument_vector(text: str, argv: tuple[str, ...]) -> None:
    """Literal words, quoted or not, run without a shell."""
    assert parse_run(text) == Command(argv)


@pytest.mark.parametrize(
    "text",
    [
        "ls | wc -l",
        "a && b",
        "a; b",
        "cat < f",
        "echo > f",
        "(a)",
        "echo $HOME",
        'echo "$HOME"',
        "echo `id`",
        'echo "`id`"',
        "ls *",
        "ls ?",
        "ls [a]",
        "echo {a,b}",
        "ls ~",
        "echo a # b",
        "! true",
        "echo a\necho b",
        "echo 'open",
        'echo "open',
        "echo open\\",
        "A=1 env",
        "A+=1 env",
        'echo "\\$HOME"',
    ],
)
def test_shell_syntax_goes_to_a_shell_unchanged(text: str) -> None:
    """Text that a shell would expand, redirect, combine or reject is given as shell text."""
    assert parse_run(f"/run {text}") == ShellText(text)


@pytest.mark.parametrize("text", ["", "hello", "/run", "/run  ", "/runs ls", "please /run ls", "/RUN ls"])
def test_other_text_is_no_directive(text: str) -> None:
    """Only a message that begins with the directive and names something is one."""
    assert parse_run(text) is None


@settings(
    max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(st.text(alphabet="ab -=.,:%@/+^_'\"\\\t", min_size=1, max_size=20))
def test_words_are_those_of_a_shell(text: str) -> None:
    """Whatever becomes an argument vector is split exactly as dash splits it."""
    run = parse_run(f"/run x {text}")
    if not isinstance(run, Command):
        return
    shell = shutil.which("dash") or "/bin/sh"
    script = f"printf '%s\\0' x {text}"
    found = subprocess.run([shell, "-c", script], capture_output=True, check=True, timeout=60).stdout
    assert tuple(found.decode().split("\0")[:-1]) == run.argv
