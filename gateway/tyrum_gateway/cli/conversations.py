"""`tyrum conversations`: the transcript read back, followed and cancelled."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tyrum_gateway.cli.options import (
    Address,
    Last,
    Output,
    StateDir,
    after,
    candidates,
    one_of,
    sub_app,
)
from tyrum_gateway.cli.output import Format
from tyrum_gateway.cli.tables import Full, Wide

if TYPE_CHECKING:
    from tyrum_gateway.cli.connection import Target

app = sub_app("Read, export, watch and cancel conversations.")

ConversationArgument = Annotated[
    str,
    typer.Argument(
        metavar="CONVERSATION",
        help="Id, such as conv_…, or its beginning.",
        autocompletion=candidates("conversation"),
    ),
]


@app.command("list")
def list_conversations(
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Show at most this many.")] = 50,
    *,
    wide: Wide = False,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """List conversations, newest first."""
    from tyrum_gateway.cli import transcript  # noqa: PLC0415 - imports grpc

    target = transcript.find(state_dir, address)
    asyncio.run(transcript.list_conversations(target, limit, output, wide=wide))


@app.command()
def show(
    conversation: ConversationArgument = "",
    *,
    last: Last = False,
    full: Full = False,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Print the whole transcript of a conversation."""
    from tyrum_gateway.cli import transcript  # noqa: PLC0415 - imports grpc

    target = transcript.find(state_dir, address)
    asyncio.run(transcript.show(target, _named(target, conversation, last=last), output, full=full))


@app.command()
def export(
    conversation: ConversationArgument = "",
    *,
    last: Last = False,
    file: Annotated[Path | None, typer.Option(metavar="PATH", help="New file, instead of stdout.")] = None,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.JSONL,
) -> None:
    """Write the whole transcript with every event, to keep it or to hand it over."""
    from tyrum_gateway.cli import transcript_export  # noqa: PLC0415 - imports grpc

    target = transcript_export.find(state_dir, address)
    conversation = _named(target, conversation, last=last)
    asyncio.run(transcript_export.export(target, conversation, file, output))


@app.command()
def watch(
    conversation: ConversationArgument = "",
    *,
    last: Last = False,
    after: Annotated[int, after("Number of the last event already seen.")] = 0,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Follow a conversation from its beginning, or from an event on, until Ctrl-C."""
    from tyrum_gateway.cli import transcript  # noqa: PLC0415 - imports grpc

    conversation = _named(transcript.find(state_dir, address), conversation, last=last)
    asyncio.run(transcript.watch(lambda: transcript.find(state_dir, address), conversation, after, output))


@app.command()
def cancel(
    turn: Annotated[
        str,
        typer.Argument(
            metavar="TURN",
            help="Id, such as turn_…, or its beginning.",
            autocompletion=candidates("turn", waiting=True),
        ),
    ],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the transcript.")] = "",
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Cancel a turn: its process is ended and its approvals are closed."""
    from tyrum_gateway.cli import transcript  # noqa: PLC0415 - imports grpc
    from tyrum_gateway.cli.identifiers import whole  # noqa: PLC0415

    target = transcript.find(state_dir, address)
    asyncio.run(transcript.cancel(target, whole(target, "turn", turn), reason, output))


def _named(target: "Target", conversation: str, *, last: bool) -> str:
    from tyrum_gateway.cli import identifiers  # noqa: PLC0415 - imports grpc

    one_of(conversation, "CONVERSATION", last=last)
    if last:
        return identifiers.last(target, "conversation")
    return identifiers.whole(target, "conversation", conversation)
