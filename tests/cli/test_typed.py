"""What the gateway finds wrong is named as it was typed."""

import pytest
from typer._click import Command
from typer.core import TyperGroup

from tests.support.gateway import RunningGateway
from tyrum_gateway.cli.commands import COMMANDS, run
from tyrum_gateway.cli.typed import LISTS, PARAMETERS

LONG = "x" * 2000
NO_ID = "0" * 26


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("approvals list --conversation x", "`--conversation` must be `conv_`"),
        ("approvals watch -c x", "`--conversation` must be `conv_`"),
        ("approvals show x", "`APPROVAL` must be `appr_`"),
        (f"approvals deny {'appr_' + '0' * 26} --reason {LONG}", "`--reason` must have at most 1024 bytes"),
        (
            f"approvals approve {'appr_' + '0' * 26} --digest x --always --expires 400d",
            "`--expires` must be 1 s to 365 days",
        ),
        (
            f"approvals approve {'appr_' + '0' * 26} --digest {LONG}",
            "`--digest` must be the digest of the approval",
        ),
        ("chat --conversation x hello", "`--conversation` must be `conv_`"),
        ("conversations show x", "`CONVERSATION` must be `conv_`"),
        ("conversations cancel x", "`TURN` must be `turn_`"),
        ("policy overrides revoke x", "`OVERRIDE` must be `over_`"),
        ("runs show x", "`RUN` must be `run_`"),
        ("runs list --principal prin_x", "`--principal` must be `prin_`"),
        ("runs export --conversation x", "`--conversation` must be `conv_`"),
        (f"audit list --kind {LONG}", "`--kind`: no kind begins with"),
        (f"audit list --actor {LONG}", "`--actor` must have at most 128 bytes"),
        ("principals create A --role chat", "`NAME` must be 1 to 64"),
        (
            "principals tokens issue operator --label a --expires-in 1s",
            "`--expires-in` must be 60 s to 365 days",
        ),
        ("principals tokens revoke x", "`TOKEN` must be `tok_`"),
    ],
)
def test_options_are_named_not_fields(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str], arguments: str, told: str
) -> None:
    """A value that the gateway refuses is named by its option or argument, and the exit code is 2."""
    capsys.readouterr()
    assert run([*arguments.split(), "--state-dir", str(gateway.state_dir)]) == 2
    assert f"error: {told}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", ["audit list --after", "audit export --after", "conversations watch c --after"]
)
def test_a_number_that_no_log_reaches_is_a_usage_error(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    """A number beyond 64 bits is refused by name of its option."""
    assert run([*arguments.split(), "--after", str(1 << 63), "--state-dir", str(gateway.state_dir)]) == 2
    assert "--after" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (f"approvals show appr_{NO_ID}", "approvals list --all"),
        (f"chat hello -c conv_{NO_ID}", "conversations list"),
        (f"conversations cancel turn_{NO_ID}", "runs list"),
        (f"policy overrides revoke over_{NO_ID}", "policy overrides list --all"),
        (f"principals tokens revoke tok_{NO_ID}", "principals tokens list --all"),
        ("principals tokens issue nobody --label x", "principals list --all"),
        ("providers explain nobody", "providers list"),
    ],
)
def test_what_is_unknown_is_looked_for_in_a_list(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str], arguments: str, command: str
) -> None:
    """An unknown id or name ends with 1 and the command that lists those there are, for the same gateway."""
    place = f"--state-dir {gateway.state_dir}"
    capsys.readouterr()
    assert run(f"{arguments} {place}".split()) == 1
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: unknown ")
    assert hint == f"hint: tyrum {command} {place}"
    assert run(f"{command} {place}".split()) == 0


@pytest.mark.parametrize("noun", ["approvals", "audit", "policy", "principals", "principals tokens"])
def test_the_help_of_a_noun_is_not_cut_off(capsys: pytest.CaptureFixture[str], noun: str) -> None:
    """Of every command the whole first sentence stands in the list."""
    assert run([*noun.split(), "--help"]) == 0
    _, _, listed = capsys.readouterr().out.partition("Commands:")
    assert listed.count("\n") > 3
    assert "..." not in listed


def test_help_explains_a_command_like_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    """`tyrum help COMMAND` prints what `tyrum COMMAND --help` prints."""
    told = []
    for arguments in ("help chat", "chat --help"):
        assert run(arguments.split()) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]


def test_every_parameter_of_the_tables_exists() -> None:
    """The tables name parameters that some command has."""
    known = {parameter for entry in COMMANDS.values() for parameter in parameters(entry.load())}
    assert {*PARAMETERS.values(), *LISTS} <= known


def parameters(command: Command) -> set[str]:
    """Names of a command's parameters, and of those below it."""
    below = command.commands.values() if isinstance(command, TyperGroup) else ()
    own = {parameter.name for parameter in command.params if parameter.name}
    return own.union(*(parameters(each) for each in below))
