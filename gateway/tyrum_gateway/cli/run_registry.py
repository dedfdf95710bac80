"""The run registry over gRPC. Invariant: a number that is a lower bound is shown as one."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from tyrum.chat.v1.event_pb2 import ApprovalOutcome, CallState, TurnState
from tyrum.run.v1.run_pb2 import (
    ExportRunsRequest,
    GetRunRequest,
    ListRunsRequest,
    Run,
    RunApproval,
    RunCall,
    RunFilter,
)
from tyrum_gateway.cli.approval_client import command_line
from tyrum_gateway.cli.connection import DEADLINE, Gateway, Target, connect, find, reason_of
from tyrum_gateway.cli.destination import destination
from tyrum_gateway.cli.output import (
    Format,
    as_json,
    counted,
    emit,
    emit_all,
    enum_word,
    fields,
    heading,
    moment,
    more,
    named,
    note,
    on_terminal,
    say,
)
from tyrum_gateway.cli.progress import counting
from tyrum_gateway.cli.projection import TurnView
from tyrum_gateway.cli.screen import Screen
from tyrum_gateway.cli.tables import Cell, Column, table, when
from tyrum_gateway.cli.terminal import shortened, visible_line
from tyrum_gateway.cli.transcript import events

__all__ = ["Chosen", "export", "find", "list_runs", "show"]

_PAGE = 200
_WIDTH = 80
_COLUMNS = (
    Column("RUN"),
    Column("ACCEPTED"),
    Column("STATE"),
    Column("WHO", leaves=2),
    Column("AGENT", leaves=5),
    Column("MODEL", leaves=4),
    Column("CALLS", leaves=1),
    Column("SECONDS"),
    Column("TOKENS", leaves=3),
)
_CALL = (
    Column("CALL"),
    Column("STEP", leaves=3),
    Column("TOOL", leaves=2),
    Column("STATE"),
    Column("RULE", leaves=4),
    Column("PROVIDER", leaves=6),
    Column("PROFILE", leaves=7),
    Column("ARTIFACT", leaves=8),
    Column("BYTES", leaves=5),
    Column("WHAT", least=20),
)
_APPROVAL = (
    Column("APPROVAL"),
    Column("CALL", leaves=5),
    Column("OUTCOME"),
    Column("BY", leaves=1),
    Column("METHOD", leaves=2),
    Column("FROM", leaves=3),
    Column("OVERRIDE", leaves=4),
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which runs; what is empty selects all."""

    conversation: str
    principal: str
    state: str | None
    since: datetime | None
    until: datetime | None
    """Both in UTC."""

    def message(self) -> RunFilter:
        """Write the filter."""
        chosen = RunFilter(conversation_id=self.conversation, principal_id=self.principal)
        if self.state is not None:
            chosen.state = TurnState.Value(f"TURN_STATE_{self.state.upper()}")
        for at, field in ((self.since, chosen.since), (self.until, chosen.until)):
            if at is not None:
                field.FromDatetime(at.replace(tzinfo=UTC))
        return chosen


async def list_runs(
    target: Target, chosen: Chosen, limit: int, output: Format, *, totals: bool, wide: bool
) -> None:
    """Print at most `limit` runs, newest first; with `totals` text ends with their sums."""
    found: list[Run] = []
    token = ""
    async with connect(target) as gateway:
        while len(found) < limit:
            page = await gateway.runs.ListRuns(
                ListRunsRequest(
                    filter=chosen.message(), page_size=min(_PAGE, limit - len(found)), page_token=token
                ),
                metadata=gateway.metadata,
                timeout=DEADLINE,
            )
            found += page.runs
            token = page.next_page_token
            if not token:
                break
    if output is not Format.TEXT:
        emit_all(found, output)
    elif not found and not totals:
        note("there are no such runs")
    else:
        table(_COLUMNS, [_brief(run) for run in found], wide=wide)
        if totals:
            say(_totals(found))
    if token:
        note(more("older runs", limit))


async def show(target: Target, run_id: str, output: Format, *, wide: bool, full: bool) -> None:
    """Print one run; as text with what its commands printed, where the caller may read the conversation."""
    async with connect(target) as gateway:
        response = await gateway.runs.GetRun(
            GetRunRequest(run_id=run_id), metadata=gateway.metadata, timeout=DEADLINE
        )
        if output is not Format.TEXT:
            emit(as_json(response.run), output)
            return
        _show(response.run, wide=wide)
        if response.run.calls:
            await _show_results(gateway, response.run, Screen(full=full))


async def _show_results(gateway: Gateway, run: Run, screen: Screen) -> None:
    view = TurnView(run.turn_id)
    try:
        found = [
            event async for event in events(gateway, run.conversation_id) if event.turn_id == run.turn_id
        ]
    except grpc.aio.AioRpcError as error:
        if not reason_of(error):
            raise
        note("what the calls printed is for those who may read the conversation")
        return
    heading("Results")
    for event in found:
        pieces = view.event(event)
        if event.HasField("tool_call_finished"):
            screen.show(pieces)


async def export(target: Target, chosen: Chosen, file: Path | None, output: Format) -> None:
    """Write all runs that pass the filters."""
    count = 0
    async with connect(target) as gateway:
        with ExitStack() as stack:
            out = stack.enter_context(destination(file))
            progress = stack.enter_context(counting("runs", alone=file is not None or not on_terminal()))
            async for run in _all(gateway, chosen):
                for line in _lines(run, count, output):
                    out.write(line)
                count += 1
                progress.step()
            if output is Format.JSON:
                out.write("]\n" if count else "[]\n")
    if file is not None:
        note(f"{counted(count, 'run')} written to {file}")


async def _all(gateway: Gateway, chosen: Chosen) -> AsyncIterator[Run]:
    async for response in gateway.runs.ExportRuns(
        ExportRunsRequest(filter=chosen.message()), metadata=gateway.metadata
    ):
        for run in response.runs:
            yield run


def _lines(run: Run, before: int, output: Format) -> Iterator[str]:
    match output:
        case Format.TEXT:
            yield "  ".join(visible_line(cell) for cell in _summary(run)) + "\n"
        case Format.JSON:
            yield (",\n" if before else "[") + json.dumps(as_json(run), indent=2)
        case Format.JSONL:
            yield json.dumps(as_json(run)) + "\n"


def _summary(run: Run) -> tuple[str, ...]:
    return (
        run.run_id,
        moment(run.created_at),
        _state(run),
        run.principal or run.principal_id,
        run.agent,
        ", ".join(run.answered_by) or run.model,
        str(len(run.calls)),
        _seconds(run.total) if run.HasField("total") else "",
        _tokens(run),
    )


def _brief(run: Run) -> tuple[str | Cell, ...]:
    """Give what can be said briefly its shorter form."""
    full = _summary(run)
    state = Cell(_state(run), _state(run).removesuffix(" approval"))
    return (full[0], when(run.created_at), state, *full[3:])


def _show(run: Run, *, wide: bool) -> None:
    heading(run.run_id)
    waited = f", {_seconds(run.waited)} s of it waiting for a human" if run.waited.ToNanoseconds() else ""
    fields(
        [
            ("turn", f"{run.turn_id}, number {run.number} of {run.conversation_id}"),
            ("asked by", named(run.principal, run.principal_id)),
            ("agent", run.agent),
            ("model", _model(run)),
            ("backend", f"{run.backend} {run.session}".strip()),
            ("host", run.host),
            ("state", _state(run)),
            ("reason", run.reason),
            ("accepted", moment(run.created_at)),
            ("ended", moment(run.ended_at)),
            ("took", f"{_seconds(run.total)} s{waited}" if run.HasField("total") else ""),
            ("steps", _steps(run)),
            ("tokens", _tokens(run)),
            ("output", counted(run.output_bytes, "byte")),
        ]
    )
    if run.calls:
        heading("Calls")
        table(
            _CALL,
            [_call(call) for call in run.calls],
            wide=wide,
        )
    if run.approvals:
        heading("Approvals")
        table(
            _APPROVAL,
            [_approval(approval) for approval in run.approvals],
            wide=wide,
        )


def _call(call: RunCall) -> tuple[str, ...]:
    return (
        call.call_id,
        str(call.step),
        call.tool,
        enum_word(CallState, call.state, "CALL_STATE_"),
        call.rule_id or "-",
        call.provider or "-",
        call.profile or "-",
        call.artifact_digest[:19] or "-",
        str(call.output_bytes),
        shortened(_what(call), _WIDTH),
    )


def _approval(approval: RunApproval) -> tuple[str, ...]:
    outcome = enum_word(ApprovalOutcome, approval.outcome, "APPROVAL_OUTCOME_")
    return (
        approval.approval_id,
        approval.call_id,
        outcome if approval.outcome else "pending",
        approval.by or "-",
        approval.method or "-",
        approval.origin or "-",
        approval.override_id or "-",
    )


def _model(run: Run) -> str:
    """Name the model, and which ones answered where that was not it alone."""
    answered = list(run.answered_by)
    return run.model if answered in ([], [run.model]) else f"{run.model}, answered by {', '.join(answered)}"


def _state(run: Run) -> str:
    return enum_word(TurnState, run.state, "TURN_STATE_")


def _steps(run: Run) -> str:
    """Write how many steps the model was asked for, and what of its answers came to nothing."""
    given_up = run.attempts - run.steps
    return f"{run.steps}, besides {counted(given_up, 'attempt')} given up" if given_up > 0 else str(run.steps)


def _tokens(run: Run) -> str:
    bound = "" if run.usage_complete else "at least "
    return f"{bound}{run.input_tokens} in, {run.output_tokens} out"


def _totals(runs: Sequence[Run]) -> str:
    bound = "" if all(run.usage_complete for run in runs) else "at least "
    tokens_in, tokens_out = sum(run.input_tokens for run in runs), sum(run.output_tokens for run in runs)
    seconds = sum(run.total.ToNanoseconds() for run in runs) / 1e9
    turns, calls = counted(len(runs), "turn"), counted(sum(len(run.calls) for run in runs), "call")
    return f"total: {turns}, {calls}, {seconds:.3f} seconds, {bound}{tokens_in} tokens in, {tokens_out} out"


def _what(call: RunCall) -> str:
    """Write on one line what policy saw of a call: its program with the arguments, or its shell text."""
    try:
        target = json.loads(call.target)
        return str(target["shell"]) if "shell" in target else command_line(target["program"], target["argv"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return "-"


def _seconds(duration: Duration) -> str:
    return f"{duration.ToMilliseconds() / 1000:.3f}"
