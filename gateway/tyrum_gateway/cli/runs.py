"""`tyrum runs`: the registry of what ran, for whom and with what."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

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
from tyrum_gateway.cli.tables import Full, Wide

app = sub_app("Show what ran, for whom and with what.")


class State(StrEnum):
    """States of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING_APPROVAL = "waiting_approval"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


Principal = Annotated[
    str,
    typer.Option(
        "--principal",
        metavar="NAME",
        help="Only those of one principal, by name or id.",
        autocompletion=candidates("principal"),
    ),
]
InState = Annotated[State | None, typer.Option("--state", help="Only those in one state.")]


def _moment(text: str) -> datetime:
    for form in ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"):
        with suppress(ValueError):
            return datetime.strptime(text, form).replace(tzinfo=UTC)
    raise typer.BadParameter(f"`{text}` is no time such as 2026-11-30 or 2026-11-30T12:00:00Z")


Since = Annotated[
    datetime | None,
    typer.Option(
        "--since",
        parser=_moment,
        metavar="TIME",
        help="Only those accepted since then, in UTC: 2026-11-30 or 2026-11-30T12:00:00Z.",
    ),
]
Until = Annotated[
    datetime | None,
    typer.Option("--until", parser=_moment, metavar="TIME", help="Only those accepted before then, in UTC."),
]


@app.command("list")
def list_runs(
    *,
    conversation: Conversation = "",
    principal: Principal = "",
    state: InState = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Show at most this many.")] = 50,
    totals: Annotated[
        bool, typer.Option("--totals", help="End text with the sums over the runs that are shown.")
    ] = False,
    wide: Wide = False,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """List runs, newest first."""
    from tyrum_gateway.cli import identifiers  # noqa: PLC0415 - imports grpc
    from tyrum_gateway.cli import run_registry as registry  # noqa: PLC0415

    target = registry.find(state_dir, address)
    conversation = identifiers.whole(target, "conversation", conversation)
    chosen = registry.Chosen(conversation, principal, state, since, until)
    asyncio.run(registry.list_runs(target, chosen, limit, output, totals=totals, wide=wide))


@app.command()
def show(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Id, such as run_… or turn_…, or its beginning.",
            autocompletion=candidates("run"),
        ),
    ] = "",
    *,
    last: Last = False,
    wide: Wide = False,
    full: Full = False,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Show one run: who asked, with what it ran, what was permitted and by whom, what it used."""
    from tyrum_gateway.cli import identifiers  # noqa: PLC0415 - imports grpc
    from tyrum_gateway.cli import run_registry as registry  # noqa: PLC0415

    one_of(run, "RUN", last=last)
    target = registry.find(state_dir, address)
    run = identifiers.last(target, "run") if last else identifiers.whole(target, "run", run)
    asyncio.run(registry.show(target, run, output, wide=wide, full=full))


@app.command()
def export(
    *,
    conversation: Conversation = "",
    principal: Principal = "",
    state: InState = None,
    since: Since = None,
    until: Until = None,
    file: Annotated[Path | None, typer.Option(metavar="PATH", help="New file, instead of stdout.")] = None,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.JSONL,
) -> None:
    """Write all runs, newest first."""
    from tyrum_gateway.cli import identifiers  # noqa: PLC0415 - imports grpc
    from tyrum_gateway.cli import run_registry as registry  # noqa: PLC0415

    target = registry.find(state_dir, address)
    conversation = identifiers.whole(target, "conversation", conversation)
    chosen = registry.Chosen(conversation, principal, state, since, until)
    asyncio.run(registry.export(target, chosen, file, output))
