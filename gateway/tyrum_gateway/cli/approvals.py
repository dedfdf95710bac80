"""`tyrum approvals`: the inbox of what waits for a human."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from tyrum_gateway.cli.failure import ExitCode, Failure
from tyrum_gateway.cli.options import (
    Address,
    Conversation,
    Last,
    Output,
    StateDir,
    candidates,
    one_of,
    sub_app,
)
from tyrum_gateway.cli.output import Format
from tyrum_gateway.cli.tables import Wide

if TYPE_CHECKING:
    from tyrum_gateway.cli.connection import Target

app = sub_app("Answer what waits for a human.")

_HELP = "Id, such as appr_…, or its beginning."
ApprovalArgument = Annotated[
    str, typer.Argument(metavar="APPROVAL", help=_HELP, autocompletion=candidates("approval"))
]
WaitingArgument = Annotated[
    str, typer.Argument(metavar="APPROVAL", help=_HELP, autocompletion=candidates("approval", waiting=True))
]
OnlyOne = Annotated[bool, typer.Option("--last", help="The one that waits, when it is the only one.")]


@app.command("list")
def list_approvals(
    *,
    every: Annotated[bool, typer.Option("--all", help="Show resolved approvals too.")] = False,
    conversation: Conversation = "",
    wide: Wide = False,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """List approvals that wait, oldest first."""
    from tyrum_gateway.cli import inbox  # noqa: PLC0415 - imports grpc
    from tyrum_gateway.cli.identifiers import whole  # noqa: PLC0415

    target = inbox.find(state_dir, address)
    conversation = whole(target, "conversation", conversation)
    asyncio.run(inbox.list_approvals(target, conversation, output, resolved=every, wide=wide))


@app.command()
def show(
    approval: ApprovalArgument = "",
    *,
    last: Last = False,
    subject: Annotated[
        bool, typer.Option("--subject", help="Also print the canonical JSON that the digest is taken over.")
    ] = False,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Show what exactly would run."""
    from tyrum_gateway.cli import identifiers, inbox  # noqa: PLC0415 - imports grpc
    from tyrum_gateway.cli.identifiers import whole  # noqa: PLC0415

    one_of(approval, "APPROVAL", last=last)
    target = inbox.find(state_dir, address)
    approval = identifiers.last(target, "approval") if last else whole(target, "approval", approval)
    asyncio.run(inbox.show_approval(target, approval, output, subject=subject))


@app.command()
def approve(
    approval: WaitingArgument = "",
    *,
    last: OnlyOne = False,
    digest: Annotated[
        str, typer.Option(metavar="sha256:…", help="Digest that was shown; refused when it is another.")
    ] = "",
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the record.")] = "",
    always: Annotated[
        bool, typer.Option("--always", help="Also permit calls like it from now on; needs the role operator.")
    ] = False,
    expires: Annotated[
        str, typer.Option(metavar="DURATION", help="With --always: for how long, such as 8h; 30d by default.")
    ] = "",
    pattern: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="With --always: arguments as `argv` of a rule has them, such as '[-n, {any: true}]'.",
        ),
    ] = "",
    rest: Annotated[
        bool, typer.Option("--rest", help="With --pattern: further arguments may follow.")
    ] = False,
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="With --pattern: variable that may be set to anything; repeatable."
        ),
    ] = None,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Permit the call, once and exactly as shown.

    Without --digest a terminal shows it and asks; elsewhere the present digest is read, printed on stderr and
    used. With --always calls of the same program with the same arguments in the same directory are not asked
    about any more; `tyrum policy overrides` lists and ends such permissions.
    """
    one_of(approval, "APPROVAL", last=last)
    if not always and (expires or pattern or rest or env):
        raise Failure(
            "`--expires`, `--pattern`, `--rest` and `--env` say what `--always` permits", code=ExitCode.USAGE
        )
    from tyrum_gateway.cli import inbox  # noqa: PLC0415 - imports grpc

    wish = None
    if always:
        from tyrum_gateway.cli.always import parse  # noqa: PLC0415 - imports the configuration's readers

        wish = parse(expires, pattern, rest=rest, env=env or [])
    target = inbox.find(state_dir, address)
    approval = _decided(target, approval, last=last)
    asyncio.run(inbox.approve(target, approval, digest, reason, output, always=wish))


@app.command()
def watch(
    conversation: Conversation = "",
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Follow the inbox until Ctrl-C: what waits, then what is asked and resolved."""
    from tyrum_gateway.cli import inbox  # noqa: PLC0415 - imports grpc
    from tyrum_gateway.cli.identifiers import whole  # noqa: PLC0415

    conversation = whole(inbox.find(state_dir, address), "conversation", conversation)
    asyncio.run(inbox.watch(lambda: inbox.find(state_dir, address), conversation, output))


@app.command()
def deny(
    approval: WaitingArgument = "",
    *,
    last: OnlyOne = False,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; told to the agent.")] = "",
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Refuse the call; the reason reaches the agent."""
    from tyrum_gateway.cli import inbox  # noqa: PLC0415 - imports grpc

    one_of(approval, "APPROVAL", last=last)
    target = inbox.find(state_dir, address)
    asyncio.run(inbox.deny(target, _decided(target, approval, last=last), reason, output))


def _decided(target: "Target", approval: str, *, last: bool) -> str:
    """Return the approval that is decided on: one, or none at all."""
    from tyrum_gateway.cli.identifiers import only_one_that_waits, whole  # noqa: PLC0415 - imports grpc

    return only_one_that_waits(target) if last else whole(target, "approval", approval)
