"""The table of commands and the one place where failures become exit codes.

Invariant: help and usage errors need only this table; a command's module is imported when it is called.
"""

import os
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main
from typer._click import Command, Context
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from tyrum_gateway.cli import streams
from tyrum_gateway.cli.failure import ExitCode, Failure, report


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives and what its line in the help says."""

    module: str
    help: str
    attribute: str = "app"

    def load(self) -> Command:
        """Import the command."""
        module = import_module(f"tyrum_gateway.cli.{self.module}")
        return typer.main.get_command(getattr(module, self.attribute))


COMMANDS = {
    "serve": Entry("serve", "Start the gateway."),
    "chat": Entry("chat", "Talk to an agent."),
    "approvals": Entry("approvals", "Answer what waits for a human."),
    "policy": Entry("policy", "Judge calls by policy; list and revoke permissions."),
    "conversations": Entry("conversations", "Read, export, watch and cancel conversations."),
    "runs": Entry("runs", "Show what ran, for whom and with what."),
    "audit": Entry("audit", "Read, export and verify the audit log."),
    "principals": Entry("principals", "Manage who may call: principals, roles, tokens."),
    "whoami": Entry("whoami", "Show who you are to the gateway."),
    "providers": Entry("providers", "Show providers, their states and why."),
    "config": Entry("config", "Validate and explain the configuration file.", "config_app"),
    "doctor": Entry("doctor", "Check this machine and the running gateway."),
    "demo": Entry("demo", "Show a governed conversation, end to end."),
    "proto": Entry("proto", "Export the contracts."),
    "completion": Entry("completion", "Print what makes a shell complete commands, names and ids."),
    "version": Entry("version", "Print the version."),
    "help": Entry("topics", "Explain exit codes, environment and output."),
}
"""Every command, in the order of the help."""


COMPLETING = "_TYRUM_COMPLETE"
"""Environment variable by which a shell asks for completions."""


class CommandTable(TyperGroup):
    """The root group: placeholders until a command is resolved."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=entry.help) for name, entry in COMMANDS.items()}

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Import the command that was named."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, COMMANDS[name].load() if name else None, rest


root = typer.Typer(
    cls=CommandTable,
    add_completion=False,
    rich_markup_mode=None,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@root.callback()
def tyrum(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Tyrum decides what AI agents may do: it runs conversations, policy and approvals.

    First steps: `tyrum serve` in one terminal, `tyrum chat` in another. All of it at once: `tyrum demo`.
    """
    if version:
        from tyrum_gateway.cli.version import installed  # noqa: PLC0415 - only here

        print(f"tyrum {installed()}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def run(arguments: list[str]) -> int:
    """Run one command line; failures are reported on stderr, and the exit code is returned."""
    code = _run(arguments)
    streams.settle()
    return code


def _run(arguments: list[str]) -> int:
    command = typer.main.get_command(root)
    if COMPLETING in os.environ:
        import_module("tyrum_gateway.cli.completion").prepare()
    try:
        _require_text(arguments)
        code = command.main(arguments, prog_name="tyrum", standalone_mode=False)
        sys.stdout.flush()
    except Failure as failure:
        report(failure)
        return failure.code
    except streams.Unwritten as error:
        report(Failure(f"cannot write the output: {error}"))
        return ExitCode.FAILURE
    except TyperException as error:
        return _usage(error, arguments)
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return ExitCode.FAILURE  # the reader has gone (`| head`)
    return code if isinstance(code, int) else ExitCode.OK


def _require_text(arguments: list[str]) -> None:
    """Refuse bytes that are no text: neither the contracts nor the terminal could show them."""
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(word).decode(errors="backslashreplace")
            raise Failure(f"`{shown}` is not valid UTF-8", code=ExitCode.USAGE) from None


def _usage(error: TyperException, arguments: list[str]) -> int:
    message = error.format_message().replace(": Value error, ", ": ").replace(": Input should ", ": must ")
    if message.startswith("Usage:"):
        print(message, file=sys.stderr)
        return ExitCode.USAGE
    context = getattr(error, "ctx", None)
    if context is not None:
        path = context.command_path
    else:  # the parser's own errors know no context
        path = " ".join(("tyrum", *(word for word in arguments[:1] if word in COMMANDS)))
    report(Failure(message[:1].lower() + message[1:].rstrip("."), hint=f"{path} --help", code=ExitCode.USAGE))
    return ExitCode.USAGE
