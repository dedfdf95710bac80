"""The shortest conforming isolation provider: it is admitted, confines nothing, and runs nothing.

Copy it, replace `StartProcess` and what follows from it, and state as PROVED what you enforce. What each
member promises stands in `tyrum_provider_kit.Provider`, what each RPC must do in
`tyrum/isolation/v1/isolation.proto`.
"""

import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from typing import Any

import grpc.aio

from tyrum.error.v1 import error_pb2
from tyrum.isolation.v1 import isolation_pb2, isolation_pb2_grpc
from tyrum_provider_kit import (
    Cardinality,
    Environment,
    ProbeReport,
    ProviderDefinition,
    ServiceError,
    Violation,
    field_invalid,
    journal_identity,
    run,
)

# Every claim of the contract, no more and no fewer.
CLAIMS = (
    "fs.read", "fs.write", "fs.root_ro", "fs.sysctl", "env.sealed", "fd.sealed", "net.none", "net.family",
    "daemon.sockets", "daemon.none_survive", "proc.blind", "proc.unprivileged", "proc.syscalls",
    "tty.isolated", "res.memory", "res.pids", "res.cpu", "res.scratch", "res.files", "res.time",
)  # fmt: skip


class MinimalService(isolation_pb2_grpc.IsolationServiceServicer):
    """The RPCs of the kind. They fail by raising `ServiceError`; the kit makes the status of it."""

    journal_id = ""

    async def GetPosture(self, request: isolation_pb2.GetPostureRequest, context: Any) -> Any:
        """Tell the truth: nothing is enforced."""
        claims = [
            isolation_pb2.Claim(name=name, status=isolation_pb2.CLAIM_STATUS_NOT_ENFORCED) for name in CLAIMS
        ]
        return isolation_pb2.GetPostureResponse(claims=claims, run_uid=os.getuid(), shares_gateway_user=True)

    async def StartProcess(self, request: isolation_pb2.StartProcessRequest, context: Any) -> Any:
        """Start nothing."""
        if not request.HasField("spec"):
            raise field_invalid("spec", "is required")
        raise ServiceError(error_pb2.ERROR_REASON_CAPABILITY_NOT_DECLARED, "this provider runs no processes")

    async def ResolveOperation(self, request: isolation_pb2.ResolveOperationRequest, context: Any) -> Any:
        """Have started nothing, ever. Who starts something must keep a journal to answer this from."""
        never = isolation_pb2.NeverStarted(journal_id=self.journal_id)
        never.recorded_at.GetCurrentTime()
        return isolation_pb2.ResolveOperationResponse(never_started=never)

    async def WaitProcess(self, request: isolation_pb2.WaitProcessRequest, context: Any) -> Any:
        """Know no process."""
        raise unknown(request.process_id)

    async def GetProcess(self, request: isolation_pb2.GetProcessRequest, context: Any) -> Any:
        """Know no process."""
        raise unknown(request.process_id)

    async def ReadOutput(
        self, request: isolation_pb2.ReadOutputRequest, context: Any
    ) -> AsyncIterator[isolation_pb2.ReadOutputResponse]:
        """Know no process."""
        raise unknown(request.process_id)
        yield

    async def CancelProcess(self, request: isolation_pb2.CancelProcessRequest, context: Any) -> Any:
        """Know no process."""
        raise unknown(request.process_id)

    async def ReleaseProcess(self, request: isolation_pb2.ReleaseProcessRequest, context: Any) -> Any:
        """Have nothing to release, which is well."""
        return isolation_pb2.ReleaseProcessResponse()

    async def ListProcesses(self, request: isolation_pb2.ListProcessesRequest, context: Any) -> Any:
        """Have no process."""
        return isolation_pb2.ListProcessesResponse()


def unknown(process_id: str) -> ServiceError:
    """Refuse a process that is not here."""
    return ServiceError(
        error_pb2.ERROR_REASON_RESOURCE_NOT_FOUND, "no such process", {"process_id": process_id}
    )


class MinimalProvider:
    """What the kit asks of a provider, in the order of its life."""

    definition = ProviderDefinition(
        provider_id="org.example.minimal",
        implementation_version="0.1.0",
        kind="isolation",
        cardinality=Cardinality.EXCLUSIVE,
        config_schema={"type": "object", "additionalProperties": False},
    )
    service_name = "tyrum.isolation.v1.IsolationService"
    starting_methods: Set[str] = frozenset({"StartProcess"})

    def add_services(self, server: grpc.aio.Server) -> None:
        """Register the service of the kind."""
        self.service = MinimalService()
        isolation_pb2_grpc.add_IsolationServiceServicer_to_server(self.service, server)

    def check(self, config: Mapping[str, Any], slots: Set[str]) -> Sequence[Violation]:
        """Find nothing beyond the schema."""
        return ()

    async def configure(
        self, config: Mapping[str, Any], secrets: Mapping[str, str], environment: Environment
    ) -> str:
        """Apply nothing, and name the journal that ResolveOperation answers from."""
        self.service.journal_id = journal_identity(environment.state_dir)
        return self.service.journal_id

    async def probe(self, *, deep: bool) -> ProbeReport:
        """Be ready."""
        return ProbeReport(ready=True)

    async def drain(self) -> int:
        """Nothing outlives its call."""
        return 0

    async def shutdown(self, grace: float) -> None:
        """Nothing runs."""


if __name__ == "__main__":
    sys.exit(run(MinimalProvider()))
