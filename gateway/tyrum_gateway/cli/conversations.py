"""`tyrum conversations`: the transcript read back, followed and cancelled."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from tyrum_gateway.cli.options import Address, Output, StateDir, after, sub_app
from tyrum_gateway.cli.output import Format
from tyrum_gateway.cli.tables import Wide

app = sub_app("Read, export, watch and cancel conversations.")

ConversationArgument = Annotated[str, typer.Argument(metavar="CONVERSATION", help="Id, such as conv_….")]


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
    conversation: ConversationArgument,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Print the whole transcript of a conversation."""
    from tyrum_gateway.cli import transcript  # noqa: PLC0415 - imports grpc

    asyncio.run(transcript.show(transcript.find(state_dir, address), conversation, output))


@app.command()
def export(
    conversation: ConversationArgument,
    file: Annotated[Path | None, typer.Option(metavar="PATH", help="New file, instead of stdout.")] = None,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.JSONL,
) -> None:
    """Write the whole transcript with every event, to keep it or to hand it over."""
    from tyrum_gateway.cli import transcript_export  # noqa: PLC0415 - imports grpc

    target = transcript_export.find(state_dir, address)
    asyncio.run(transcript_export.export(target, conversation, file, output))


@app.command()
def watch(
    conversation: ConversationArgument,
    after: Annotated[int, after("Number of the last event already seen.")] = 0,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Follow a conversation from its beginning, or from an event on, until Ctrl-C."""
    from tyrum_gateway.cli import transcript  # noqa: PLC0415 - imports grpc

    asyncio.run(transcript.watch(lambda: transcript.find(state_dir, address), conversation, after, output))


@app.command()
def cancel(
    turn: Annotated[str, typer.Argument(metavar="TURN", help="Id, such as turn_….")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the transcript.")] = "",
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Cancel a turn: its process is ended and its approvals are closed."""
    from tyrum_gateway.cli import transcript  # noqa: PLC0415 - imports grpc

    asyncio.run(transcript.cancel(transcript.find(state_dir, address), turn, reason, output))
