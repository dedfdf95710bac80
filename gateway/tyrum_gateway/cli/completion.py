"""`tyrum completion`: what makes a shell complete commands, options, names and ids."""

from enum import StrEnum
from typing import Annotated

import typer

from tyrum_gateway.cli.commands import COMPLETING
from tyrum_gateway.cli.options import sub_app

app = sub_app("Print what makes a shell complete commands, names and ids.")


class Shell(StrEnum):
    """Shells that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="One of bash, zsh and fish.")],
) -> None:
    """Print the completion script of a shell; ids and names are asked from the running gateway.

    Without a gateway that answers within a second, ids and names are not completed.
    """
    from typer._completion_shared import get_completion_script  # noqa: PLC0415 - heavy

    script = get_completion_script(prog_name="tyrum", complete_var=COMPLETING, shell=shell.value)
    print(script.removeprefix("#compdef tyrum\n\n"))


def prepare() -> None:
    """Make the parser answer a shell that asks."""
    from typer._completion_classes import completion_init  # noqa: PLC0415 - only then

    completion_init()
