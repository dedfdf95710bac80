"""IsolationService on the wire: checks, delegates, and turns every failure into its registered reason."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, TypeAlias

import grpc.aio

from tyrum.error.v1 import error_pb2
from tyrum.error.v1.error_pb2 import ErrorReason
from tyrum.isolation.v1 import isolation_pb2 as pb
from tyrum.isolation.v1 import isolation_pb2_grpc
from tyrum_local_spawn import convert, failures
from tyrum_local_spawn.output import read_output
from tyrum_local_spawn.posture import Posture
from tyrum_local_spawn.runs import Runs
from tyrum_provider_kit import ServiceError

_log = logging.getLogger(__name__)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class IsolationService(isolation_pb2_grpc.IsolationServiceServicer):
    """Serves a configured provider; the kit keeps calls away before that."""

    def __init__(self, provider_id: str) -> None:
        self._provider_id = provider_id
        self._runs: Runs | None = None
        self._posture: Posture | None = None

    def open(self, runs: Runs, posture: Posture) -> None:
        """Begin to answer."""
        self._runs = runs
        self._posture = posture

    @property
    def _open(self) -> Runs:
        if self._runs is None:
            raise ServiceError(error_pb2.ERROR_REASON_NOT_CONFIGURED, "the provider is not configured")
        return self._runs

    async def GetPosture(  # noqa: N802
        self, request: pb.GetPostureRequest, context: Context
    ) -> pb.GetPostureResponse:
        """State that nothing is enforced."""
        assert self._posture is not None
        return convert.posture_message(self._posture)

    async def StartProcess(  # noqa: N802
        self, request: pb.StartProcessRequest, context: Context
    ) -> pb.StartProcessResponse:
        """Start a run, or return the one an equal request began."""
        with _on_the_wire():
            actor = convert.read_context(request, self._provider_id)
            start = convert.read_start(request)
            linger = convert.read_linger(request)
            convert.check_journal(request, self._open.register.journal_id)
            try:
                run = self._open.begin(start)
            finally:  # refused or not; and while the supervisor works, not before
                _log.info("start of %s for %s under %s", *_subject(request, actor))
            view = await self._open.begun(run, linger)
        return pb.StartProcessResponse(process=convert.process_message(view))

    async def WaitProcess(  # noqa: N802
        self, request: pb.WaitProcessRequest, context: Context
    ) -> pb.WaitProcessResponse:
        """Return the ended run."""
        with _on_the_wire():
            convert.read_context(request, self._provider_id)
            process_id = convert.read_process_id(request.process_id)
            view = await self._open.register.wait(process_id, convert.read_wait_timeout(request))
        return pb.WaitProcessResponse(process=convert.process_message(view))

    async def GetProcess(  # noqa: N802
        self, request: pb.GetProcessRequest, context: Context
    ) -> pb.GetProcessResponse:
        """Return the run as it is."""
        with _on_the_wire():
            convert.read_context(request, self._provider_id)
            view = await self._open.register.view(convert.read_process_id(request.process_id))
        return pb.GetProcessResponse(process=convert.process_message(view))

    async def ResolveOperation(  # noqa: N802
        self, request: pb.ResolveOperationRequest, context: Context
    ) -> pb.ResolveOperationResponse:
        """Answer from the durable record what became of an operation."""
        with _on_the_wire():
            convert.read_context(request, self._provider_id)
            found = await self._open.register.resolve(convert.read_operation_id(request.operation_id))
            return convert.resolution_message(found, self._open.register.journal_id)

    async def ReadOutput(  # noqa: N802
        self, request: pb.ReadOutputRequest, context: Context
    ) -> AsyncIterator[pb.ReadOutputResponse]:
        """Stream retained output."""
        with _on_the_wire():
            convert.read_context(request, self._provider_id)
            process_id = convert.read_process_id(request.process_id)
            stream = convert.read_stream(request.stream)
            reading = read_output(
                self._open.register, process_id, stream, request.offset, follow=request.follow
            )
            async with aclosing(reading) as pieces:
                async for piece in pieces:
                    yield convert.output_message(piece)

    async def CancelProcess(  # noqa: N802
        self, request: pb.CancelProcessRequest, context: Context
    ) -> pb.CancelProcessResponse:
        """Ask for the end of the tree and acknowledge."""
        with _on_the_wire():
            actor = convert.read_context(request, self._provider_id)
            process_id = convert.read_process_id(request.process_id)
            _log.info("cancel of %s for %s under %s", *_subject(request, actor))
            view = await self._open.cancel(process_id, convert.read_cancel_grace(request))
        return pb.CancelProcessResponse(state=convert.state_of(view))

    async def ReleaseProcess(  # noqa: N802
        self, request: pb.ReleaseProcessRequest, context: Context
    ) -> pb.ReleaseProcessResponse:
        """Free an ended run."""
        with _on_the_wire():
            convert.read_context(request, self._provider_id)
            await self._open.register.release(convert.read_process_id(request.process_id))
        return pb.ReleaseProcessResponse()

    async def ListProcesses(  # noqa: N802
        self, request: pb.ListProcessesRequest, context: Context
    ) -> pb.ListProcessesResponse:
        """Return one page of the runs."""
        with _on_the_wire():
            after, count = convert.read_page(request)
            views, more = self._open.register.listed(after, count)
        return pb.ListProcessesResponse(
            processes=[convert.process_message(view, evidence=False) for view in views],
            next_page_token=views[-1].process_id if more else "",
        )


def _subject(request: pb.StartProcessRequest | pb.CancelProcessRequest, actor: str) -> tuple[str, str, str]:
    return request.process_id, actor, request.context.binding.binding_id


@contextmanager
def _on_the_wire() -> Iterator[None]:
    try:
        yield
    except failures.Failure as failure:
        raise ServiceError(_reason(failure), failure.message, failure.metadata) from failure


def _reason(failure: failures.Failure) -> ErrorReason.ValueType:
    match failure:
        case failures.Invalid():
            return error_pb2.ERROR_REASON_FIELD_INVALID
        case failures.Reused():
            return error_pb2.ERROR_REASON_REQUEST_ID_REUSED
        case failures.Unknown():
            return error_pb2.ERROR_REASON_RESOURCE_NOT_FOUND
        case failures.StillRunning():
            return error_pb2.ERROR_REASON_PROCESS_RUNNING
        case failures.WaitExpired():
            return error_pb2.ERROR_REASON_WAIT_EXPIRED
        case failures.Unmet(reason=reason) | failures.Full(reason=reason):
            return ErrorReason.Value(f"ERROR_REASON_{reason}")
        case failures.Draining():
            return error_pb2.ERROR_REASON_DRAINING
        case failures.Damaged():
            return error_pb2.ERROR_REASON_STORE_CORRUPT
        case _:
            return error_pb2.ERROR_REASON_INTERNAL
