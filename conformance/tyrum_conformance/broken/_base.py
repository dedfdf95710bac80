"""The smallest conforming isolation provider: it admits, and declares that it runs nothing.

The others inherit from it, so that each of them is bad in exactly one way.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence, Set
from typing import Any, TypeAlias

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
)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Awaitable[Any]]"
StreamContext: TypeAlias = "grpc.aio.ServicerContext[Any, AsyncIterator[Any]]"

DEFINITION = ProviderDefinition(
    provider_id="dev.tyrum.conformance.good",
    implementation_version="1.0.0",
    kind="isolation",
    cardinality=Cardinality.EXCLUSIVE,
    config_schema={"type": "object", "properties": {}, "additionalProperties": False},
    max_concurrent_operations=4,
)


class GoodProvider:
    """Conforms; offers no optional capability and starts no process."""

    definition = DEFINITION
    service_name = "tyrum.isolation.v1.IsolationService"
    starting_methods: Set[str] = frozenset({"StartProcess"})

    def add_services(self, server: grpc.aio.Server) -> None:
        """Register the domain service."""
        self.service = self.servicer()
        isolation_pb2_grpc.add_IsolationServiceServicer_to_server(self.service, server)

    def servicer(self) -> "GoodService":
        """Create the domain servicer."""
        return GoodService()

    def check(self, config: Mapping[str, Any], slots: Set[str]) -> Sequence[Violation]:
        """Find nothing: the schema says it all."""
        return ()

    async def configure(
        self, config: Mapping[str, Any], secrets: Mapping[str, str], environment: Environment
    ) -> str:
        """Apply nothing, and name the journal."""
        self.service.journal_id = journal_identity(environment.state_dir)
        return self.service.journal_id

    async def probe(self, *, deep: bool) -> ProbeReport:
        """Be ready."""
        return ProbeReport(ready=True)

    async def drain(self) -> int:
        """Nothing outlives a call."""
        return 0

    async def shutdown(self, grace: float) -> None:
        """Nothing runs."""


CLAIMS = (
    "fs.read", "fs.write", "fs.root_ro", "fs.sysctl", "env.sealed", "fd.sealed", "net.none", "net.family",
    "daemon.sockets", "daemon.none_survive", "proc.blind", "proc.unprivileged", "proc.syscalls",
    "tty.isolated", "res.memory", "res.pids", "res.cpu", "res.scratch", "res.files", "res.time",
)  # fmt: skip


class GoodService(isolation_pb2_grpc.IsolationServiceServicer):
    """Tells the truth about a boundary that does not exist, and refuses what it does not offer."""

    journal_id = ""
    """Set once the provider is configured."""

    async def GetPosture(  # noqa: N802
        self, request: isolation_pb2.GetPostureRequest, context: Context
    ) -> isolation_pb2.GetPostureResponse:
        """Enforce nothing."""
        claims = [
            isolation_pb2.Claim(name=name, status=isolation_pb2.CLAIM_STATUS_NOT_ENFORCED) for name in CLAIMS
        ]
        return isolation_pb2.GetPostureResponse(claims=claims, run_uid=os.getuid(), shares_gateway_user=True)

    async def StartProcess(  # noqa: N802
        self, request: isolation_pb2.StartProcessRequest, context: Context
    ) -> isolation_pb2.StartProcessResponse:
        """Start nothing."""
        if not request.HasField("spec"):
            raise field_invalid("spec", "is required")
        raise ServiceError(error_pb2.ERROR_REASON_CAPABILITY_NOT_DECLARED, "this provider runs no processes")

    async def WaitProcess(  # noqa: N802
        self, request: isolation_pb2.WaitProcessRequest, context: Context
    ) -> isolation_pb2.WaitProcessResponse:
        """Know no process."""
        raise _unknown_process(request.process_id)

    async def GetProcess(  # noqa: N802
        self, request: isolation_pb2.GetProcessRequest, context: Context
    ) -> isolation_pb2.GetProcessResponse:
        """Know no process."""
        raise _unknown_process(request.process_id)

    async def ResolveOperation(  # noqa: N802
        self, request: isolation_pb2.ResolveOperationRequest, context: Context
    ) -> isolation_pb2.ResolveOperationResponse:
        """Have started nothing, ever."""
        never = isolation_pb2.NeverStarted(journal_id=self.journal_id)
        never.recorded_at.GetCurrentTime()
        return isolation_pb2.ResolveOperationResponse(never_started=never)

    async def ReadOutput(  # noqa: N802
        self, request: isolation_pb2.ReadOutputRequest, context: StreamContext
    ) -> AsyncIterator[isolation_pb2.ReadOutputResponse]:
        """Know no process."""
        raise _unknown_process(request.process_id)
        yield isolation_pb2.ReadOutputResponse()

    async def CancelProcess(  # noqa: N802
        self, request: isolation_pb2.CancelProcessRequest, context: Context
    ) -> isolation_pb2.CancelProcessResponse:
        """Know no process."""
        raise _unknown_process(request.process_id)

    async def ReleaseProcess(  # noqa: N802
        self, request: isolation_pb2.ReleaseProcessRequest, context: Context
    ) -> isolation_pb2.ReleaseProcessResponse:
        """Have nothing to release, which is well."""
        return isolation_pb2.ReleaseProcessResponse()

    async def ListProcesses(  # noqa: N802
        self, request: isolation_pb2.ListProcessesRequest, context: Context
    ) -> isolation_pb2.ListProcessesResponse:
        """Have no process."""
        return isolation_pb2.ListProcessesResponse()


def _unknown_process(process_id: str) -> ServiceError:
    return ServiceError(
        error_pb2.ERROR_REASON_RESOURCE_NOT_FOUND, "no such process", {"process_id": process_id}
    )
