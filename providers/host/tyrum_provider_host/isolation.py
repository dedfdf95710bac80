"""Typed client of the isolation contract for one admitted instance (wire edge).

Every method raises `CallError` (its class says how to recover), `ProviderUnavailable` when the instance had
ended before the call, and passes the caller's cancellation on. An answer that breaks the contract raises
`ProviderBug`: the outcome of the call is then unknown.
"""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import TypeVar

from grpc import aio

from tyrum.isolation.v1 import isolation_pb2, isolation_pb2_grpc
from tyrum_provider_host import isolation_convert as convert
from tyrum_provider_host.channel_client import ProviderChannel
from tyrum_provider_host.control_client import ContractViolation
from tyrum_provider_host.errors import ANSWERED, ProviderBug
from tyrum_provider_host.isolation_types import (
    NeverStarted,
    OperationContext,
    OutputChunk,
    OutputStream,
    Posture,
    Process,
    ProcessPage,
    ProcessSpec,
    ProcessState,
)

_DOMAIN = "tyrum.isolation.v1"
WAIT_MARGIN = 2.0
MAX_WAIT = 600.0
MAX_LINGER = 10.0

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_Value = TypeVar("_Value")


class IsolationClient:
    """Calls one instance. Timeouts are seconds; the defaults are the contract's bounds."""

    def __init__(
        self, channel: ProviderChannel, *, on_violation: Callable[[str], None] | None = None
    ) -> None:
        """Call over `channel`; `on_violation` is told of each answer that breaks the contract."""
        self._channel = channel
        self._on_violation = on_violation
        self._stub = isolation_pb2_grpc.IsolationServiceStub(channel.channel)

    async def start(
        self,
        context: OperationContext,
        *,
        operation_id: str,
        process_id: str,
        spec: ProcessSpec,
        linger: float = 0.0,
        timeout: float = 10.0,
    ) -> Process:
        """Start one command tree; idempotent by operation id.

        Args:
            context: The decision it is started under.
            operation_id: Idempotency key.
            process_id: Name of the run.
            spec: What runs.
            linger: How long the answer may wait for the end, at most 10 s. The process may have ended in any
                answer.
            timeout: How long the start itself may take; `linger` comes on top of it.
        """
        patience = min(max(linger, 0.0), MAX_LINGER)
        request = isolation_pb2.StartProcessRequest(
            context=convert.context_message(context),
            operation_id=operation_id,
            process_id=process_id,
            spec=convert.spec_message(spec),
            linger=convert.duration_message(timedelta(seconds=patience)) if patience else None,
        )

        def read(answer: isolation_pb2.StartProcessResponse) -> Process:
            process = convert.process(answer.process)
            if (process.process_id, process.operation_id) != (process_id, operation_id):
                raise ContractViolation("the answer describes another process")
            return process

        return await self._unary(self._stub.StartProcess, request, "StartProcess", timeout + patience, read)

    async def wait(self, context: OperationContext, process_id: str, *, timeout: float) -> Process:
        """Return the process once it has ended and its record is durable; `timeout` is at most 600 s.

        Raises:
            WaitExpired: it still runs after `timeout`.
        """
        patience = min(max(timeout, 0.0), MAX_WAIT)
        request = isolation_pb2.WaitProcessRequest(
            context=convert.context_message(context),
            process_id=process_id,
            timeout=convert.duration_message(timedelta(seconds=patience)),
        )

        def read(answer: isolation_pb2.WaitProcessResponse) -> Process:
            process = _of(process_id, convert.process(answer.process))
            if process.result is None:
                raise ContractViolation("WaitProcess answered with a running process")
            return process

        return await self._unary(self._stub.WaitProcess, request, "WaitProcess", patience + WAIT_MARGIN, read)

    async def get(self, context: OperationContext, process_id: str, *, timeout: float = 2.0) -> Process:
        """Return the present state without waiting."""
        request = isolation_pb2.GetProcessRequest(
            context=convert.context_message(context), process_id=process_id
        )

        def read(answer: isolation_pb2.GetProcessResponse) -> Process:
            return _of(process_id, convert.process(answer.process))

        return await self._unary(self._stub.GetProcess, request, "GetProcess", timeout, read)

    async def resolve_operation(
        self, context: OperationContext, operation_id: str, *, timeout: float = 10.0
    ) -> Process | NeverStarted:
        """Ask the provider's journal what became of an operation; one that has not begun never will."""
        request = isolation_pb2.ResolveOperationRequest(
            context=convert.context_message(context), operation_id=operation_id
        )

        def read(answer: isolation_pb2.ResolveOperationResponse) -> Process | NeverStarted:
            match answer.WhichOneof("outcome"):
                case "process":
                    process = convert.process(answer.process)
                    if process.operation_id != operation_id:
                        raise ContractViolation("the answer describes another operation")
                    return process
                case "never_started":
                    return convert.never_started(answer.never_started)
                case None:
                    raise ContractViolation("`outcome` is missing")

        return await self._unary(self._stub.ResolveOperation, request, "ResolveOperation", timeout, read)

    async def read_output(
        self,
        context: OperationContext,
        process_id: str,
        stream: OutputStream,
        *,
        offset: int = 0,
        follow: bool = False,
        timeout: float = 60.0,
    ) -> AsyncIterator[OutputChunk]:
        """Yield the retained bytes from `offset`; with `follow` until the stream ends.

        Leaving the iteration early ends the call and never touches the process. Chunks follow each other:
        a chunk begins where the one before ended, after `dropped_before` bytes the spool no longer holds.
        """
        request = isolation_pb2.ReadOutputRequest(
            context=convert.context_message(context),
            process_id=process_id,
            stream=convert.stream_value(stream),
            offset=offset,
            follow=follow,
        )
        position, over = offset, False
        async for answer in self._channel.stream(
            self._stub.ReadOutput, request, name="ReadOutput", domain=_DOMAIN, timeout=timeout
        ):
            try:
                chunk = convert.chunk(answer)
                begin = chunk.offset - chunk.dropped_before
                if begin != position:
                    raise ContractViolation(f"a chunk continues at {begin}, expected {position}")
                if over:
                    raise ContractViolation("a chunk comes after the one that says `eof`")
            except ContractViolation as violation:
                raise self._bug("ReadOutput", violation) from None
            position, over = chunk.offset + len(chunk.data), chunk.eof
            yield chunk

    async def cancel(
        self,
        context: OperationContext,
        process_id: str,
        *,
        grace: timedelta | None = None,
        timeout: float = 2.0,
    ) -> ProcessState:
        """End the command tree: SIGTERM, then SIGKILL. Acknowledged without waiting for the end."""
        request = isolation_pb2.CancelProcessRequest(
            context=convert.context_message(context),
            process_id=process_id,
            grace=None if grace is None else convert.duration_message(grace),
        )
        return await self._unary(
            self._stub.CancelProcess,
            request,
            "CancelProcess",
            timeout,
            lambda answer: convert.state(answer.state),
        )

    async def release(self, context: OperationContext, process_id: str, *, timeout: float = 10.0) -> None:
        """Free spool and record of an ended process; an unknown process is fine."""
        request = isolation_pb2.ReleaseProcessRequest(
            context=convert.context_message(context), process_id=process_id
        )
        await self._unary(self._stub.ReleaseProcess, request, "ReleaseProcess", timeout, lambda _: None)

    async def list(self, *, page_size: int = 100, page_token: str = "", timeout: float = 5.0) -> ProcessPage:
        """Return one page of the processes that have a record, without output evidence."""
        request = isolation_pb2.ListProcessesRequest(page_size=page_size, page_token=page_token)
        return await self._unary(
            self._stub.ListProcesses,
            request,
            "ListProcesses",
            timeout,
            lambda answer: ProcessPage(tuple(map(convert.process, answer.processes)), answer.next_page_token),
        )

    async def posture(self, *, timeout: float = 2.0) -> Posture:
        """Return every claim with its status."""
        return await self._unary(
            self._stub.GetPosture,
            isolation_pb2.GetPostureRequest(),
            "GetPosture",
            timeout,
            lambda answer: convert.posture(answer, mask=self._channel.mask),
        )

    async def _unary(
        self,
        method: "aio.UnaryUnaryMultiCallable[_Request, _Response]",
        request: _Request,
        name: str,
        timeout: float,
        read: Callable[[_Response], _Value],
    ) -> _Value:
        answer = await self._channel.unary(method, request, name=name, domain=_DOMAIN, timeout=timeout)
        try:
            return read(answer)
        except ContractViolation as violation:
            raise self._bug(name, violation) from None

    def _bug(self, method: str, violation: ContractViolation) -> ProviderBug:
        if self._on_violation is not None:
            self._on_violation(f"{method}: {violation}")
        detail = f"the answer breaks the contract: {violation}"
        return ProviderBug(method=method, code=ANSWERED, detail=detail)


def _of(process_id: str, process: Process) -> Process:
    if process.process_id != process_id:
        raise ContractViolation("the answer describes another process")
    return process
