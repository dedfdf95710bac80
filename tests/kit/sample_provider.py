"""A provider over the kit whose handlers misbehave on request: the kit's promises must hold all the same."""

# ruff: noqa: D102, N802 - members and RPCs are documented by what they implement

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from typing import Any

import grpc.aio

from tyrum.error.v1 import error_pb2
from tyrum.isolation.v1 import isolation_pb2, isolation_pb2_grpc
from tyrum_conformance.broken._base import Context, GoodService, StreamContext
from tyrum_provider_kit import (
    CapabilityState,
    Cardinality,
    Condition,
    ConditionStatus,
    Environment,
    ProbeReport,
    ProviderDefinition,
    SecretSlot,
    ServiceError,
    Violation,
    control,
    field_invalid,
    run,
)

DRAIN_MARGIN = 20.0
"""Seconds by which Drain answers before its deadline: a busy machine takes more than the product keeps."""

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "mode": {
            "enum": [
                "plain",
                "odd",
                "fails_once",
                "slow_probe",
                "stuck_probe",
                "hangs_in_shutdown",
                "fails_in_shutdown",
            ]
        },
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "names": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}},
    },
    "required": ["mode"],
    "additionalProperties": False,
}


class SampleProvider:
    """Everything the kit offers, used once."""

    definition = ProviderDefinition(
        provider_id="dev.tyrum.tests.sample",
        implementation_version="1.2.3-rc.1",
        kind="isolation",
        cardinality=Cardinality.EXCLUSIVE,
        config_schema=SCHEMA,
        secret_slots=(SecretSlot("api_key", required=True, purpose="opens"), SecretSlot("spare")),
        capabilities=("durable", "resume"),
        max_concurrent_operations=2,
        handle_versions=(1,),
        cache_directories=("cache",),
    )
    service_name = "tyrum.isolation.v1.IsolationService"
    starting_methods: Set[str] = frozenset({"StartProcess"})

    def __init__(self) -> None:
        self.service = SampleService()
        self.mode = ""
        self.failed = False

    def add_services(self, server: grpc.aio.Server) -> None:
        isolation_pb2_grpc.add_IsolationServiceServicer_to_server(self.service, server)

    def check(self, config: Mapping[str, Any], slots: Set[str]) -> Sequence[Violation]:
        if config["mode"] == "odd" and "spare" not in slots:
            return (Violation("/mode", "needs_spare", "odd needs the slot spare"),)
        return ()

    async def configure(
        self, config: Mapping[str, Any], secrets: Mapping[str, str], environment: Environment
    ) -> None:
        if config["mode"] == "fails_once" and not self.failed:
            self.failed = True
            raise ServiceError(error_pb2.ERROR_REASON_BACKEND_UNAVAILABLE, "the backend sleeps")
        await asyncio.sleep(0.05)  # long enough for a second Configure to come in between
        self.mode = config["mode"]
        self.service.secret = secrets["api_key"]
        (environment.state_dir / "configured").write_text(environment.provider_name)

    async def probe(self, *, deep: bool) -> ProbeReport:
        if self.mode == "slow_probe":
            await asyncio.sleep(30)
        fact = Condition("Deep", ConditionStatus.TRUE if deep else ConditionStatus.UNKNOWN, "ASKED")
        state = CapabilityState("resume", available=False, reason="not today")
        return ProbeReport(ready=True, conditions=(fact,), capabilities=(state,), running=5)

    async def drain(self) -> int:
        return 5

    async def shutdown(self, grace: float) -> None:
        if self.mode == "hangs_in_shutdown":
            time.sleep(30)  # noqa: ASYNC251 - a blocked event loop is the case
        if self.mode == "fails_in_shutdown":
            raise RuntimeError("could not let go")


class SampleService(GoodService):
    """Misbehaves as the operation id says."""

    secret = ""

    def __init__(self) -> None:
        self.release = asyncio.Event()

    async def StartProcess(
        self, request: isolation_pb2.StartProcessRequest, context: Context
    ) -> isolation_pb2.StartProcessResponse:
        match request.operation_id:
            case "explode":
                raise RuntimeError(f"cannot log in with {self.secret}")
            case "cancel":
                raise asyncio.CancelledError
            case "wrong type":
                return "not a message"  # type: ignore[return-value]
            case "wait":
                await self.release.wait()
            case "invalid":
                raise field_invalid("spec.argv", "must have 1 to 256 entries")
            case _:
                pass
        return isolation_pb2.StartProcessResponse()

    async def CancelProcess(
        self, request: isolation_pb2.CancelProcessRequest, context: Context
    ) -> isolation_pb2.CancelProcessResponse:
        self.release.set()
        return isolation_pb2.CancelProcessResponse()

    async def WaitProcess(
        self, request: isolation_pb2.WaitProcessRequest, context: Context
    ) -> isolation_pb2.WaitProcessResponse:
        await self.release.wait()
        return isolation_pb2.WaitProcessResponse()

    async def ReadOutput(
        self, request: isolation_pb2.ReadOutputRequest, context: StreamContext
    ) -> AsyncIterator[isolation_pb2.ReadOutputResponse]:
        yield isolation_pb2.ReadOutputResponse(data=b"first")
        match request.process_id:
            case "explode":
                raise RuntimeError(f"lost the stream of {self.secret}")
            case "refuse":
                raise ServiceError(error_pb2.ERROR_REASON_STORE_CORRUPT, "the spool is damaged")
            case _:
                pass
        yield isolation_pb2.ReadOutputResponse(offset=5, eof=True)

    # What an author forgot to write is inherited from the generated base.
    ListProcesses = isolation_pb2_grpc.IsolationServiceServicer.ListProcesses  # type: ignore[assignment]


if __name__ == "__main__":
    control.DRAIN_MARGIN_SECONDS = DRAIN_MARGIN
    sys.exit(run(SampleProvider()))
