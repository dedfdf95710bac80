"""How a command reaches a gateway that is not on this machine: options that every client command has.

They hold for the one command of the process; invariant: files are named, secrets are never given.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main
from typer._click import Context, HelpFormatter
from typer.core import TyperCommand

from tyrum_gateway.cli import given_values
from tyrum_gateway.cli.examples import EXAMPLES
from tyrum_gateway.cli.given_values import variable

OPTIONS = ("ca", "client_cert", "client_key", "token_file")
CREDENTIALS = frozenset({"client_cert", "client_key", "token_file"})
"""Options that say who the caller is."""

VARIABLES = {
    "ca": "TYRUM_TLS_CA",
    "client_cert": "TYRUM_TLS_CLIENT_CERT",
    "client_key": "TYRUM_TLS_CLIENT_KEY",
    "token_file": "TYRUM_TOKEN_FILE",
}
"""Environment variables that stand in for the options."""

_given: dict[str, Path] = {}


def named_file(option: str) -> Path | None:
    """Return the file that an option of this command names, else its environment variable."""
    return _given.get(option) or variable(VARIABLES[option])


def given() -> Mapping[str, Path]:
    """Return what the options of this command name."""
    return dict(_given)


class ClientCommand(TyperCommand):
    """A command with its examples; one that takes `--address` also takes what a distant gateway needs."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        if any(parameter.name == "address" for parameter in self.params):
            known = typer.main.get_command(_donor)
            self.params.extend(parameter for parameter in known.params if parameter.name in OPTIONS)

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write examples below the help."""
        path = ctx.command_path.partition(" ")[2]
        if examples := EXAMPLES.get(path):
            with formatter.section("Examples"):
                for example in examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the words, of which none may break the rules of `given_values`."""
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        given_values.check(self.get_params(ctx), given, ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Context) -> Any:
        """Run the command with its own parameters."""
        _given.clear()
        for name in OPTIONS:
            if (value := ctx.params.pop(name, None)) is not None:
                _given[name] = value
        return super().invoke(ctx)


_donor = typer.Typer(add_completion=False, rich_markup_mode=None)


@_donor.command()
def _remote(
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca", metavar="FILE", help="Use TLS; PEM file with the authority of the gateway's certificate."
        ),
    ] = None,
    client_cert: Annotated[
        Path | None,
        typer.Option("--client-cert", metavar="FILE", help="PEM file with a certificate of your own."),
    ] = None,
    client_key: Annotated[
        Path | None,
        typer.Option("--client-key", metavar="FILE", help="PEM file with its private key, mode 0600."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="File with your bearer token, mode 0600."),
    ] = None,
) -> None:
    """Lend its options."""
