"""RunService over the registry's desk: parse, call, convert; nothing is decided here."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from google.protobuf import duration_pb2

from tyrum.run.v1 import run_pb2, run_pb2_grpc
from tyrum_gateway.app.runs import RunDesk
from tyrum_gateway.domain.errors import InvalidRequest, NotFound
from tyrum_gateway.domain.ids import ConversationId, RunId, TurnId
from tyrum_gateway.domain.run import Run, RunApproval, RunCall, RunFilter
from tyrum_gateway.domain.states import TurnState
from tyrum_gateway.rpc import convert
from tyrum_gateway.rpc.guard import caller

_STATES = {number: state for state, number in convert.TURN_STATES.items()}


class RunServicer(run_pb2_grpc.RunServiceServicer):
    """Reading the run registry."""

    def __init__(self, desk: RunDesk) -> None:
        self._desk = desk

    async def ListRuns(  # noqa: N802 - named by the contract
        self, request: run_pb2.ListRunsRequest, context: Any
    ) -> run_pb2.ListRunsResponse:
        """Page through runs; the token is the id of the last run that was looked at."""
        size = convert.page_size(request.page_size, default=50, maximum=200)
        token = request.page_token
        before = RunId.parse(token, "page_token").turn_id if token else None
        page = await self._desk.page(caller(), await self._filter(request.filter), before, size)
        runs, more = convert.page(page.runs, size, run)
        following = RunId.of(page.next) if page.next is not None else ""
        return run_pb2.ListRunsResponse(runs=runs, next_page_token=runs[-1].run_id if more else following)

    async def GetRun(  # noqa: N802 - named by the contract
        self, request: run_pb2.GetRunRequest, context: Any
    ) -> run_pb2.GetRunResponse:
        """Return a run, by its id or its turn's."""
        given = request.run_id
        if given.startswith(f"{TurnId.prefix}_"):
            turn_id = TurnId.parse(given, "run_id")
        else:
            turn_id = RunId.parse(given, "run_id").turn_id
        try:
            found = await self._desk.run(caller(), turn_id)
        except NotFound:
            raise NotFound("run", given) from None
        return run_pb2.GetRunResponse(run=run(found))

    async def ExportRuns(  # noqa: N802 - named by the contract
        self, request: run_pb2.ExportRunsRequest, context: Any
    ) -> AsyncGenerator[run_pb2.ExportRunsResponse, None]:
        """Stream all runs that pass the filters."""
        async for found in self._desk.all(caller(), await self._filter(request.filter)):
            left = list(found)
            while left:
                written, _ = convert.page(left, len(left), run)
                yield run_pb2.ExportRunsResponse(runs=written)
                left = left[len(written) :]

    async def _filter(self, given: run_pb2.RunFilter) -> RunFilter:
        state: TurnState | None = None
        if given.state:
            state = _STATES.get(given.state)
            if state is None:
                raise InvalidRequest("filter.state", "must be a state of a turn")
        conversation, principal = given.conversation_id, given.principal_id
        return RunFilter(
            conversation_id=ConversationId.parse(conversation, "filter.conversation_id")
            if conversation
            else None,
            principal_id=await self._desk.principal(caller(), principal) if principal else None,
            state=state,
            since=_moment(given, "since"),
            until=_moment(given, "until"),
        )


def _moment(given: run_pb2.RunFilter, field: Literal["since", "until"]) -> datetime | None:
    if not given.HasField(field):
        return None
    value = given.since if field == "since" else given.until
    try:
        return value.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"filter.{field}", "is no time") from error


def run(item: Run) -> run_pb2.Run:
    """Write a run."""
    message = run_pb2.Run(
        run_id=RunId.of(item.turn_id),
        turn_id=item.turn_id,
        conversation_id=item.conversation_id,
        number=item.number,
        principal_id=item.principal_id,
        principal=item.principal,
        agent=item.origin.agent,
        model=item.origin.model,
        backend=item.origin.backend,
        session=item.origin.session,
        host=item.origin.host,
        state=convert.TURN_STATES[item.state],
        reason=item.reason,
        created_at=convert.timestamp(item.created_at),
        waited=_duration(item.waited),
        steps=item.steps,
        attempts=item.attempts,
        input_tokens=item.input_tokens,
        output_tokens=item.output_tokens,
        usage_complete=item.usage_complete,
        answered_by=item.answered_by,
        output_bytes=item.output_bytes,
        calls=[_call(call) for call in item.calls],
        approvals=[_approval(approval) for approval in item.approvals],
    )
    if item.ended_at is not None:
        message.ended_at.CopyFrom(convert.timestamp(item.ended_at))
    if item.total is not None:
        message.total.CopyFrom(_duration(item.total))
    return message


def _call(item: RunCall) -> run_pb2.RunCall:
    message = run_pb2.RunCall(
        call_id=item.call_id,
        step=item.step,
        tool=item.tool,
        state=convert.CALL_STATES[item.state],
        rule_id=item.rule_id,
        operation_id=item.operation_id or "",
        process_id=item.process_id or "",
        output_bytes=item.output_bytes,
        target=item.target,
    )
    if item.binding is not None:
        message.binding_id = item.binding.binding_id
        message.provider = item.binding.provider
        message.profile = item.binding.profile
        message.artifact_digest = item.binding.artifact_digest
        message.instance_id = item.binding.instance_id
    return message


def _approval(item: RunApproval) -> run_pb2.RunApproval:
    message = run_pb2.RunApproval(
        approval_id=item.approval_id,
        call_id=item.call_id,
        by=item.resolved_by,
        method=item.method,
        origin=item.origin,
        override_id=item.override_id or "",
        asked_at=convert.timestamp(item.asked_at),
    )
    if item.outcome is not None:
        message.outcome = convert.OUTCOMES[item.outcome]
    if item.resolved_at is not None:
        message.resolved_at.CopyFrom(convert.timestamp(item.resolved_at))
    return message


def _duration(value: timedelta) -> duration_pb2.Duration:
    message = duration_pb2.Duration()
    message.FromTimedelta(value)
    return message
