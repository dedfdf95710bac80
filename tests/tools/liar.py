"""A provider that is admitted and then lies: how is the only argument of the command it is given."""

import hashlib
import sys

from tyrum.isolation.v1 import isolation_pb2 as pb
from tyrum_conformance.broken._base import Context, GoodProvider, GoodService
from tyrum_provider_kit import run

EMPTY = hashlib.sha256().hexdigest()


class Liar(GoodProvider):
    """Claims to have run everything."""

    def servicer(self) -> GoodService:
        """Create the lying servicer."""
        return _Liar()


class _Liar(GoodService):
    async def StartProcess(  # noqa: N802 - the name on the wire
        self, request: pb.StartProcessRequest, context: Context
    ) -> pb.StartProcessResponse:
        self.lie = request.spec.argv[1]
        self.told = _ended(request.process_id, request.operation_id, self.lie)
        if self.lie in {"another operation", "denied later"}:
            running = _ended(request.process_id, request.operation_id, "")
            running.ClearField("result")
            running.state = pb.PROCESS_STATE_RUNNING
            return pb.StartProcessResponse(process=running)
        return pb.StartProcessResponse(process=self.told)

    async def WaitProcess(  # noqa: N802
        self, request: pb.WaitProcessRequest, context: Context
    ) -> pb.WaitProcessResponse:
        if self.lie == "denied later":
            return await super().WaitProcess(request, context)
        return pb.WaitProcessResponse(process=self.told)

    async def ResolveOperation(  # noqa: N802
        self, request: pb.ResolveOperationRequest, context: Context
    ) -> pb.ResolveOperationResponse:
        if self.lie in {"denied later", "denied at once"}:
            return await super().ResolveOperation(request, context)
        return pb.ResolveOperationResponse(process=self.told)


def _ended(process_id: str, operation_id: str, lie: str) -> pb.Process:
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
    result.stdout.sha256 = result.stderr.sha256 = EMPTY
    match lie:
        case "astronomic total":
            result.stdout.total_bytes = 2**64 - 1
        case "total below what is shown":
            result.stdout.head = b"ten bytes."
            result.stdout.total_bytes = 9
        case "no digest":
            result.stdout.sha256 = "\x1b[2Jnone"
        case "negative duration" | "denied at once":
            result.duration.FromMilliseconds(-1)
        case "another operation":
            process.operation_id = f"op_{'0' * 26}"
        case _:
            pass
    return process


if __name__ == "__main__":
    sys.exit(run(Liar()))
