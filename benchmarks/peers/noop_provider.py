"""An isolation provider that runs nothing and says that it ran: a no-op tool behind a real process boundary.

For benchmarks only: started by a gateway like any provider, it takes the whole road of admission, binding and
typed calls, so that a turn pays for everything but the command.
"""

import sys
from dataclasses import replace

from tyrum.isolation.v1 import isolation_pb2 as pb
from tyrum_conformance.broken._base import Context, GoodProvider, GoodService
from tyrum_provider_kit import run

_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class NoopService(GoodService):
    """Every run has ended, well and without output, as soon as it is asked for."""

    async def StartProcess(  # noqa: N802
        self, request: pb.StartProcessRequest, context: Context
    ) -> pb.StartProcessResponse:
        """Answer that the run began and ended."""
        result = pb.ProcessResult(cause=pb.END_CAUSE_EXITED, exit_code=0, tree_empty=True)
        result.ended_at.GetCurrentTime()
        result.duration.FromMilliseconds(0)
        for stream in (result.stdout, result.stderr):
            stream.sha256 = _EMPTY
        process = pb.Process(
            process_id=request.process_id,
            operation_id=request.operation_id,
            state=pb.PROCESS_STATE_ENDED,
            handle=b"noop",
            handle_version=1,
            result=result,
        )
        process.started_at.CopyFrom(result.ended_at)
        return pb.StartProcessResponse(process=process)

    async def ReleaseProcess(  # noqa: N802
        self, request: pb.ReleaseProcessRequest, context: Context
    ) -> pb.ReleaseProcessResponse:
        """Have nothing to forget."""
        return pb.ReleaseProcessResponse()


class NoopProvider(GoodProvider):
    """What the kit drives."""

    definition = replace(
        GoodProvider.definition,
        provider_id="dev.tyrum.benchmarks.noop",
        max_concurrent_operations=256,
        handle_versions=(1,),
    )

    def servicer(self) -> NoopService:
        """Create the domain servicer."""
        return NoopService()


if __name__ == "__main__":
    sys.exit(run(NoopProvider()))
