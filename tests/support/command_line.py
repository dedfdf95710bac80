"""Whether words typed after `tyrum` are a command that exists, with options that it has."""

from collections.abc import Sequence

import typer
import typer.main
from typer.core import TyperGroup

from tyrum_gateway.cli.commands import COMMANDS, root


def problems_of(arguments: Sequence[str]) -> list[str]:
    """Return what is wrong with the arguments; values of options are not looked at.

    A command may be named without the arguments that it needs, as text does.
    """
    words = list(arguments)
    if not words or words[0].startswith("-"):
        return _unknown_options(typer.main.get_command(root), words)
    name = words.pop(0)
    if name not in COMMANDS:
        return [f"no command `{name}`"]
    command = COMMANDS[name].load()
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        name = words.pop(0)
        if name not in command.commands:
            return [f"no command `{name}`"]
        command = command.commands[name]
    return _unknown_options(command, words)


def _unknown_options(command: typer._click.Command, words: Sequence[str]) -> list[str]:
    known = {"--help", "-h"}
    for parameter in command.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    if words and words[0] == "--":
        return []
    options = [word.partition("=")[0] for word in words if word.startswith("-") and word != "-"]
    return [f"no option `{option}`" for option in options if option not in known]
