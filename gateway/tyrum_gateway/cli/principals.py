"""`tyrum principals`: who may call the gateway, in which roles, with which tokens."""

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tyrum_gateway.cli.durations import duration
from tyrum_gateway.cli.failure import ExitCode, Failure
from tyrum_gateway.cli.options import Address, Output, StateDir, candidates, sub_app
from tyrum_gateway.cli.output import Format
from tyrum_gateway.cli.tables import Wide

app = sub_app("Manage who may call: principals, roles, tokens.")
tokens = sub_app("Issue, list and revoke tokens.")
app.add_typer(tokens, name="tokens")


class RoleName(StrEnum):
    """Roles as the command line names them."""

    CHAT = "chat"
    APPROVER = "approver"
    OPERATOR = "operator"
    AUDITOR = "auditor"
    ADMIN = "admin"


PrincipalArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name or id, such as prin_….", autocompletion=candidates("principal")
    ),
]
Roles = Annotated[
    list[RoleName] | None,
    typer.Option(
        "--role", "-r", metavar="ROLE", help="A role: chat, approver, operator, auditor or admin; repeatable."
    ),
]


@app.command("list")
def list_principals(
    every: Annotated[bool, typer.Option("--all", help="Show disabled ones too.")] = False,
    wide: Wide = False,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """List principals with their roles, oldest first."""
    from tyrum_gateway.cli import accounts  # noqa: PLC0415 - imports grpc

    asyncio.run(accounts.list_principals(accounts.find(state_dir, address), output, every=every, wide=wide))


@app.command()
def create(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="1 to 64 of `a-z 0-9 . _ - @`, a letter or digit first; never given twice."
        ),
    ],
    role: Roles = None,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Add a principal; it gets tokens with `tyrum principals tokens issue`.

    Roles do not imply each other: chat sends messages and reads its own conversations; approver sees and
    answers what waits for a human; operator sees all but the audit log, cancels turns and ends standing
    permissions; auditor sees all, and the audit log; admin manages principals, sees all, cancels turns and
    ends standing permissions. Without a role a principal can only ask who it is.
    """
    from tyrum_gateway.cli import accounts  # noqa: PLC0415 - imports grpc

    asyncio.run(accounts.create(accounts.find(state_dir, address), name, _names(role), output))


@app.command()
def roles(
    name: PrincipalArgument,
    *,
    role: Roles = None,
    none: Annotated[bool, typer.Option("--none", help="Take every role away.")] = False,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Replace the roles of a principal by those given; what it loses, it loses at once."""
    if bool(role) == none:
        raise Failure("give the roles with --role, or --none", code=ExitCode.USAGE)
    from tyrum_gateway.cli import accounts  # noqa: PLC0415 - imports grpc

    asyncio.run(accounts.set_roles(accounts.find(state_dir, address), name, _names(role), output))


@app.command()
def disable(
    name: PrincipalArgument,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """End a principal for ever: none of its tokens works again; what it began goes on."""
    from tyrum_gateway.cli import accounts  # noqa: PLC0415 - imports grpc

    asyncio.run(accounts.disable(accounts.find(state_dir, address), name, output))


@tokens.command()
def issue(
    name: PrincipalArgument,
    *,
    label: Annotated[
        str, typer.Option("--label", "-l", metavar="TEXT", help="What it is for, as `tokens list` shows it.")
    ],
    expires_in: Annotated[
        str,
        typer.Option("--expires-in", metavar="DURATION", help="How long it works: 60s to 365d, such as 12h."),
    ] = "90d",
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", metavar="FILE", help="Write the token to this new file (mode 0600), not to stdout."
        ),
    ] = None,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Give a principal a token and print it, this once: the gateway keeps its SHA-256 only.

    Its holder puts it into a file with mode 0600 and names the file with --token-file or TYRUM_TOKEN_FILE.
    """
    life = duration("--expires-in", expires_in)
    from tyrum_gateway.cli import accounts  # noqa: PLC0415 - imports grpc

    target = accounts.find(state_dir, address)
    asyncio.run(accounts.issue(target, accounts.Order(name, label, life, save), output))


@tokens.command("list")
def list_tokens(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name or id of a principal. Default: everybody.")
    ] = "",
    *,
    every: Annotated[bool, typer.Option("--all", help="Show expired and revoked ones too.")] = False,
    wide: Wide = False,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """List tokens by id, with what they are for and how long they work."""
    from tyrum_gateway.cli import accounts  # noqa: PLC0415 - imports grpc

    target = accounts.find(state_dir, address)
    asyncio.run(accounts.list_tokens(target, name, output, every=every, wide=wide))


@tokens.command()
def revoke(
    token: Annotated[
        str,
        typer.Argument(
            metavar="TOKEN",
            help="Id, such as tok_…, or its beginning; never the token itself.",
            autocompletion=candidates("token", waiting=True),
        ),
    ],
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """End a token; the next call with it is refused, and its streams end."""
    from tyrum_gateway.cli import accounts, identifiers  # noqa: PLC0415 - imports grpc

    target = accounts.find(state_dir, address)
    asyncio.run(accounts.revoke(target, identifiers.whole(target, "token", token), output))


def _names(roles: list[RoleName] | None) -> list[str]:
    return [role.value for role in roles or ()]
