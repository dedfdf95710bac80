"""Writes docs/reference/cli.md from the command line itself: `python -m tests.support.cli_reference`."""

from collections.abc import Iterator
from pathlib import Path

import typer
import typer.main
from typer._click import Command
from typer.core import TyperArgument, TyperGroup, TyperOption

from tyrum_gateway.cli.commands import COMMANDS, root
from tyrum_gateway.cli.examples import EXAMPLES
from tyrum_gateway.cli.failure import MEANINGS
from tyrum_gateway.cli.remote import OPTIONS, VARIABLES, ClientCommand
from tyrum_gateway.cli.topics import ENVIRONMENT, OUTPUT

PATH = Path(__file__).resolve().parents[2] / "docs/reference/cli.md"

_INTRODUCTION = """\
# Command line

Generated from the commands themselves by `python -m tests.support.cli_reference`; a test keeps it current.

`tyrum` is a gRPC client of the gateway like any other, plus the commands that start and check one. Errors go
to stderr as `error: …`, with what can be done about it as `hint: …`. `tyrum COMMAND --help` shows the same.
"""


_DISTANT = """\
Every command with `--address` has these options too; the variable does the same. A gateway beyond this
machine is called with TLS only.

| option | variable | meaning |
|---|---|---|"""


def _distant() -> Iterator[str]:
    command = COMMANDS["whoami"].load()
    assert isinstance(command, ClientCommand)
    context = typer.Context(command)
    for parameter in command.get_params(context):
        if isinstance(parameter, TyperOption) and parameter.name in OPTIONS:
            record = parameter.get_help_record(context)
            assert record is not None
            yield f"| `{record[0]}` | `{VARIABLES[parameter.name]}` | {record[1]} |"


def reference() -> str:
    """Return the whole page."""
    parts = [_INTRODUCTION, "## Exit codes\n", "| code | meaning |\n|---|---|"]
    parts += [f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items()]
    parts += ["\n## Environment\n", "| variable | meaning |\n|---|---|"]
    parts += [f"| `{name}` | {meaning} |" for name, meaning in ENVIRONMENT.items()]
    parts += ["\n## Distant gateways\n", _DISTANT, *_distant()]
    parts += ["\n## Output\n", f"```text\n{OUTPUT}\n```", "\n## Commands"]
    context = typer.Context(typer.main.get_command(root))
    for name, entry in COMMANDS.items():
        parts += _command(f"tyrum {name}", entry.load(), context)
    return "\n".join(parts) + "\n"


def _command(path: str, command: Command, parent: typer.Context) -> Iterator[str]:
    context = typer.Context(command, parent=parent)
    if isinstance(command, TyperGroup):
        for name, child in command.commands.items():
            yield from _command(f"{path} {name}", child, context)
        return
    yield f"\n### {path}\n"
    yield (command.help or "").strip()
    if examples := EXAMPLES.get(path.removeprefix("tyrum ")):
        yield "\n```sh\n" + "\n".join(examples) + "\n```"
    rows = list(_parameters(command, context))
    if rows:
        yield "\n| option | meaning |\n|---|---|"
        yield from rows


def _parameters(command: Command, context: typer.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        shared = parameter.name in OPTIONS
        own = isinstance(parameter, TyperArgument | TyperOption) and "--help" not in parameter.opts
        if own and not shared:
            record = parameter.get_help_record(context)
            if record is not None:
                name, meaning = (" ".join(part.replace("|", ", ").split()) for part in record)
                yield f"| `{name}` | {meaning} |"


if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(reference(), encoding="utf-8")
