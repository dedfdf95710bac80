"""Ids by their beginning, the last one, completion in real shells, examples in the help."""

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import typer.main
from typer.core import TyperGroup

from tests.support.command_line import problems_of
from tests.support.gateway import TYRUM, RunningGateway, client_environment
from tyrum_gateway.cli.commands import COMMANDS, run
from tyrum_gateway.cli.examples import EXAMPLES

BASH = """
eval "$(tyrum completion bash)"
COMP_WORDS=({words} ''); COMP_CWORD={count}
_tyrum_completion tyrum
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
compdef() {{ :; }}; _arguments() {{ print -r -- "$@"; }}; _files() {{ :; }}
eval "$(tyrum completion zsh)"
words=({words} ''); CURRENT={next}
_tyrum_completion
"""
FISH = """
tyrum completion fish | source
complete --do-complete '{words} '
"""


@dataclass(frozen=True)
class Waiting:
    """Two approvals that wait, in one conversation each."""

    gateway: RunningGateway
    first: str
    second: str


@pytest.fixture(scope="module")
def waiting(gateway: RunningGateway) -> Iterator[Waiting]:
    """Two calls that wait for an approval; at the end they are denied."""
    clients = []
    found = []
    for name in ("one", "two"):
        client = subprocess.Popen(
            [str(TYRUM), "chat", f"/run touch {name}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=client_environment(gateway.state_dir),
        )
        clients.append(client)
        assert client.stderr is not None
        found.append(client.stderr.readline().split()[3].rstrip(";"))
    yield Waiting(gateway, *found)
    for approval in found:
        gateway.tyrum("approvals", "deny", approval)
    for client in clients:
        with client:
            client.kill()


@pytest.mark.parametrize(
    ("shell", "script"), [("bash", BASH), ("zsh", ZSH), ("fish", FISH)], ids=["bash", "zsh", "fish"]
)
def test_a_shell_completes_commands_and_ids(waiting: Waiting, shell: str, script: str) -> None:
    """The real shell, with the script as it is installed, offers subcommands and the approvals that wait."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    environment = client_environment(waiting.gateway.state_dir)
    for words, expected in (
        ("tyrum approvals", ["approve", "deny", "watch"]),
        ("tyrum approvals deny", [waiting.first, waiting.second]),
    ):
        count = len(words.split())
        text = script.format(words=words, count=count, next=count + 1)
        ran = subprocess.run(
            [program, "-c", text], capture_output=True, text=True, env=environment, timeout=60, check=False
        )
        assert all(word in ran.stdout for word in expected), (ran.stdout, ran.stderr)
        assert ran.stderr == ""


def test_without_a_gateway_completion_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is offered and nothing is said when no gateway answers."""
    for name, value in (
        ("TYRUM_STATE_DIR", "/nonexistent"),
        ("_TYRUM_COMPLETE", "complete_bash"),
        ("COMP_WORDS", "tyrum approvals deny "),
        ("COMP_CWORD", "3"),
    ):
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        run([])
    assert ended.value.code == 0
    told = capsys.readouterr()
    assert (told.out.strip(), told.err) == ("", "")


def test_the_beginning_of_an_id_means_one_thing_or_nothing(
    waiting: Waiting, capsys: pytest.CaptureFixture[str]
) -> None:
    """A beginning that several have lists them and decides nothing; one that is too short is refused."""
    where = ["--state-dir", str(waiting.gateway.state_dir)]
    same = 0
    while waiting.first[same] == waiting.second[same]:
        same += 1
    both, one = waiting.first[:same], waiting.first[: same + 1]
    assert run(["approvals", "deny", both, *where]) == 2
    told = capsys.readouterr().err
    assert waiting.first in told
    assert waiting.second in told
    assert run(["approvals", "deny", "--last", *where]) == 2
    assert "`--last` is not clear: there wait" in capsys.readouterr().err
    assert run(["approvals", "show", "appr_01", *where]) == 2
    assert "that is too short to name one approval" in capsys.readouterr().err
    assert run(["approvals", "show", "zzzzzzzz", *where]) == 1
    assert "no approval begins with `zzzzzzzz`" in capsys.readouterr().err
    assert run(["approvals", "show", one.removeprefix("appr_"), *where]) == 0
    assert waiting.first in capsys.readouterr().out
    assert run(["approvals", "show", "--last", *where]) == 0
    assert waiting.second in capsys.readouterr().out
    for words in (["runs", "show"], ["conversations", "show"]):
        assert run([*words, "--last", *where]) == 0
        assert run([*words, *where]) == 2
    assert "missing argument `CONVERSATION`" in capsys.readouterr().err


def _leaves(path: str, command: typer._click.Command) -> Iterator[str]:
    if not isinstance(command, TyperGroup):
        yield path
        return
    for name, child in command.commands.items():
        yield from _leaves(f"{path} {name}", child)


def test_every_command_has_examples_that_parse(capsys: pytest.CaptureFixture[str]) -> None:
    """Each command's help ends in examples; all of them name commands and options that exist."""
    leaves = {leaf for name, entry in COMMANDS.items() for leaf in _leaves(name, entry.load())}
    assert leaves == set(EXAMPLES)
    for example in (line for lines in EXAMPLES.values() for line in lines):
        words = shlex.split(example.replace('"$(', "").replace(')"', "").partition(" > ")[0])
        assert problems_of(words[words.index("tyrum") + 1 :]) == [], example
    assert run(["runs", "show", "--help"]) == 0
    assert "\n\nExamples:\n  tyrum runs show --last\n" in capsys.readouterr().out


def test_a_bare_group_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    """A noun without a verb is a usage error that lists the verbs."""
    assert run(["principals", "tokens"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("Usage: tyrum principals tokens ")
    assert "\n  revoke  " in told
