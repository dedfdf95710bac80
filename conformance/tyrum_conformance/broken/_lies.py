"""Results that cannot be true, of a provider that claims to have run what it is given."""

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping

from tyrum.isolation.v1 import isolation_pb2 as pb
from tyrum_conformance.broken._base import Context, GoodService, StreamContext

_EMPTY = hashlib.sha256().hexdigest()
_OUTPUT = b"ten bytes."


def _output(process: pb.Process, *, total: int, sha256: str = "") -> None:
    stdout = process.result.stdout
    stdout.head = _OUTPUT
    stdout.total_bytes = total
    stdout.sha256 = sha256 or hashlib.sha256(_OUTPUT).hexdigest()


def _set(path: str, value: object) -> Callable[[pb.Process], None]:
    def change(process: pb.Process) -> None:
        *parents, name = path.split(".")
        message: object = process
        for parent in parents:
            message = getattr(message, parent)
        setattr(message, name, value)

    return change


LIES: Mapping[str, Callable[[pb.Process], None]] = {
    "nothing": lambda process: _output(process, total=len(_OUTPUT)),
    "astronomic total": _set("result.stdout.total_bytes", 2**64 - 1),
    "total below what is shown": lambda process: _output(process, total=9),
    "no digest": _set("result.stdout.sha256", "\x1b[2Jnone"),
    "digest of other bytes": lambda process: _output(process, total=len(_OUTPUT), sha256=_EMPTY),
    "digest of no bytes": _set("result.stderr.sha256", "0" * 64),
    "dropped above the total": _set("result.stdout.dropped_bytes", 1),
    "negative exit code": _set("result.exit_code", -1),
    "exit code above 255": _set("result.exit_code", 256),
    "end before the start": lambda process: process.result.ended_at.FromSeconds(
        process.started_at.seconds - 60
    ),
    "negative duration": lambda process: process.result.duration.FromMilliseconds(-1),
    "another operation": _set("operation_id", f"op_{'0' * 26}"),
    "denied later": lambda process: None,
    "denied at once": lambda process: process.result.duration.FromMilliseconds(-1),
}
"""How each result lies, by name; `nothing` is honest. Those that are denied lie in ResolveOperation too."""

STREAMS: Mapping[str, tuple[pb.ReadOutputResponse, ...]] = {
    "nothing": (pb.ReadOutputResponse(data=_OUTPUT), pb.ReadOutputResponse(offset=10, eof=True)),
    "two ends": (pb.ReadOutputResponse(data=_OUTPUT, eof=True), pb.ReadOutputResponse(offset=10, eof=True)),
    "data after the end": (
        pb.ReadOutputResponse(data=_OUTPUT, eof=True),
        pb.ReadOutputResponse(offset=10, data=b"more"),
    ),
    "a gap": (pb.ReadOutputResponse(data=_OUTPUT), pb.ReadOutputResponse(offset=11, data=b"more", eof=True)),
}
"""What ReadOutput sends, by the name that the command carried."""


class Lying(GoodService):
    """Claims to have run everything."""

    async def StartProcess(  # noqa: N802 - the name on the wire
        self, request: pb.StartProcessRequest, context: Context
    ) -> pb.StartProcessResponse:
        """Claim that the command ran."""
        if not request.spec.argv:
            return await super().StartProcess(request, context)
        self.lie = request.spec.argv[1]
        self.told = _ended(request.process_id, request.operation_id)
        LIES.get(self.lie, LIES["nothing"])(self.told)
        if self.lie in {"another operation", "denied later"}:
            running = _ended(request.process_id, request.operation_id)
            running.ClearField("result")
            running.state = pb.PROCESS_STATE_RUNNING
            return pb.StartProcessResponse(process=running)
        return pb.StartProcessResponse(process=self.told)

    async def WaitProcess(  # noqa: N802
        self, request: pb.WaitProcessRequest, context: Context
    ) -> pb.WaitProcessResponse:
        """Tell the same lie, or deny the run."""
        if not request.process_id or self.lie == "denied later":
            return await super().WaitProcess(request, context)
        return pb.WaitProcessResponse(process=self.told)

    async def ResolveOperation(  # noqa: N802
        self, request: pb.ResolveOperationRequest, context: Context
    ) -> pb.ResolveOperationResponse:
        """Tell the same lie, or deny the run."""
        if not request.operation_id or self.lie in {"denied later", "denied at once"}:
            return await super().ResolveOperation(request, context)
        return pb.ResolveOperationResponse(process=self.told)

    async def ReadOutput(  # noqa: N802
        self, request: pb.ReadOutputRequest, context: StreamContext
    ) -> AsyncIterator[pb.ReadOutputResponse]:
        """Send what the lie says."""
        if not request.process_id:
            async for answer in super().ReadOutput(request, context):
                yield answer
        for answer in STREAMS[self.lie]:
            yield answer


def _ended(process_id: str, operation_id: str) -> pb.Process:
    process = pb.Process(
        process_id=process_id,
        operation_id=operation_id,
        state=pb.PROCESS_STATE_ENDED,
        handle=b"h",
        handle_version=1,
        result=pb.ProcessResult(cause=pb.END_CAUSE_EXITED, exit_code=0),
    )
    process.started_at.GetCurrentTime()
    result = process.result
    result.ended_at.GetCurrentTime()
    result.duration.FromMilliseconds(1)
    result.stdout.sha256 = result.stderr.sha256 = _EMPTY
    return process
