"""`tyrum approvals`: the inbox of what waits for a human."""

import asyncio
from typing import Annotated

import typer

from tyrum_gateway.cli.options import Address, Output, StateDir, sub_app
from tyrum_gateway.cli.output import Format

app = sub_app("Answer what waits for a human.")

ApprovalArgument = Annotated[str, typer.Argument(metavar="APPROVAL", help="Id, such as appr_….")]


@app.command("list")
def list_approvals(
    every: Annotated[bool, typer.Option("--all", help="Show resolved approvals too.")] = False,
    conversation: Annotated[
        str, typer.Option("--conversation", "-c", metavar="ID", help="Only those of one conversation.")
    ] = "",
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """List approvals that wait, oldest first."""
    from tyrum_gateway.cli import inbox  # noqa: PLC0415 - imports grpc

    asyncio.run(inbox.list_approvals(inbox.find(state_dir, address), conversation, output, resolved=every))


@app.command()
def show(
    approval: ApprovalArgument,
    *,
    subject: Annotated[
        bool, typer.Option("--subject", help="Also print the canonical JSON that the digest is taken over.")
    ] = False,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Show what exactly would run."""
    from tyrum_gateway.cli import inbox  # noqa: PLC0415 - imports grpc

    asyncio.run(inbox.show_approval(inbox.find(state_dir, address), approval, output, subject=subject))


@app.command()
def approve(
    approval: ApprovalArgument,
    *,
    digest: Annotated[
        str, typer.Option(metavar="sha256:…", help="Digest that was shown; refused when it is another.")
    ] = "",
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the record.")] = "",
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Permit the call, once and exactly as shown.

    Without --digest a terminal shows it and asks; elsewhere the present digest is read, printed on stderr and
    used.
    """
    from tyrum_gateway.cli import inbox  # noqa: PLC0415 - imports grpc

    asyncio.run(inbox.approve(inbox.find(state_dir, address), approval, digest, reason, output))


@app.command()
def deny(
    approval: ApprovalArgument,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; told to the agent.")] = "",
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Refuse the call; the reason reaches the agent."""
    from tyrum_gateway.cli import inbox  # noqa: PLC0415 - imports grpc

    asyncio.run(inbox.deny(inbox.find(state_dir, address), approval, reason, output))
