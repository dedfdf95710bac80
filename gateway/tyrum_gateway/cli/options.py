"""Options that many commands share, written once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tyrum_gateway.cli.output import Format
from tyrum_gateway.cli.remote import ClientCommand

LARGEST = (1 << 63) - 1
"""Largest number that a row or an event can have."""

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        envvar="TYRUM_STATE_DIR",
        metavar="DIR",
        help="State directory of the gateway. Default: /var/lib/tyrum for root, else ~/.local/state/tyrum.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        help="Address of the gateway, such as unix:/run/tyrum/gateway.sock or 127.0.0.1:7460, instead of the "
        "one the state directory names; any other host needs --ca.",
    ),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")]


class _ClientApp(typer.Typer):
    """An app whose commands take what a distant gateway needs, if they take its address."""

    def command(self, name: str | None = None, **options: Any) -> Any:
        """Register a command."""
        return super().command(name, cls=ClientCommand, **options)


def sub_app(summary: str) -> typer.Typer:
    """Make the app of one command or one noun."""
    return _ClientApp(
        help=summary,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
