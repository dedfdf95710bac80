"""Options that many commands share, written once."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer._click import Context, HelpFormatter
from typer.core import TyperGroup

from tyrum_gateway.cli.failure import ExitCode, Failure
from tyrum_gateway.cli.output import Format
from tyrum_gateway.cli.remote import ClientCommand

_WHOLE = 1000
"""Characters that no first sentence has."""

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


def _checked_sequence(value: int) -> int:
    if not 0 <= value <= LARGEST:
        raise typer.BadParameter(f"must be 0 to {LARGEST}")
    return value


def after(meaning: str) -> Any:
    """Make the option that continues behind a number of a row or an event."""
    return typer.Option(
        "--after", metavar="SEQUENCE", callback=_checked_sequence, show_default=False, help=meaning
    )


def candidates(kind: str, *, waiting: bool = False) -> Callable[[typer.Context, str], list[str]]:
    """Complete ids or names of a kind from the running gateway; with `waiting` those not yet decided."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        from tyrum_gateway.cli import identifiers  # noqa: PLC0415 - imports grpc

        return identifiers.offered(kind, context.params, incomplete, waiting=waiting)

    return complete


Last = Annotated[bool, typer.Option("--last", help="The newest one, instead of an id.")]
Conversation = Annotated[
    str,
    typer.Option(
        "--conversation",
        "-c",
        metavar="ID",
        help="Only those of one conversation.",
        autocompletion=candidates("conversation"),
    ),
]


def one_of(given: str, metavar: str, *, last: bool) -> None:
    """Require an id or `--last`, and not both.

    Raises:
        Failure: Neither was given, or both were.
    """
    if bool(given) == last:
        why = f"give {metavar} or --last, not both" if last else f"missing argument `{metavar}`"
        raise Failure(why, hint="" if last else f"give {metavar} or --last", code=ExitCode.USAGE)


class _Noun(TyperGroup):
    """A group whose help says the whole first sentence of every command."""

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the list of commands."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(_WHOLE)) for name, command in commands if command]
            )


class _ClientApp(typer.Typer):
    """An app whose commands take what a distant gateway needs, if they take its address."""

    def command(self, name: str | None = None, **options: Any) -> Any:
        """Register a command."""
        return super().command(name, cls=ClientCommand, **options)


def sub_app(summary: str) -> typer.Typer:
    """Make the app of one command or one noun."""
    return _ClientApp(
        help=summary,
        cls=_Noun,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
