"""The control plane of one instance: ProviderControlService over a Provider.

Invariants: the descriptor is constant; a configuration is applied once, whole or not at all; nothing is
ready or SERVING before it, nor after a drain has begun.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from dataclasses import replace
from typing import Any, TypeAlias

import grpc.aio
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health_aio

from tyrum.error.v1 import error_pb2
from tyrum.provider.v1 import control_pb2, control_pb2_grpc
from tyrum_provider_kit import convert
from tyrum_provider_kit.environment import Environment
from tyrum_provider_kit.errors import ServiceError
from tyrum_provider_kit.proof import Credentials, Transcript
from tyrum_provider_kit.provider import Provider
from tyrum_provider_kit.report import Condition, ConditionStatus, ProbeReport
from tyrum_provider_kit.schema import Violation, clipped, violations
from tyrum_provider_kit.state import InstanceState

CONTROL_VERSIONS = (1, 1)
"""Control-plane versions the kit speaks, lowest and highest."""

CONFIGURE_SECONDS = 9.5
PROBE_SECONDS = 0.8
DRAIN_SECONDS = 29.5
DRAIN_MARGIN_SECONDS = 0.5
MAX_VIOLATIONS_BYTES = 2048

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Awaitable[Any]]"

_log = logging.getLogger(__name__)


class ControlService(control_pb2_grpc.ProviderControlServiceServicer):
    """Answers the host for one provider instance.

    Args:
        provider: what the author wrote.
        environment: where the instance lives.
        credentials: the keys of the one-time token.
        state: shared with the guard.
        conceal: told the secrets before the provider gets them.
        stop: called once with the grace in seconds when the host asks for the end.
    """

    def __init__(
        self,
        *,
        provider: Provider,
        environment: Environment,
        credentials: Credentials,
        state: InstanceState,
        conceal: Callable[[Iterable[str]], None],
        stop: Callable[[float], None],
    ) -> None:
        self._provider = provider
        self._definition = provider.definition
        self._environment = environment
        self._credentials = credentials
        self._state = state
        self._conceal = conceal
        self._stop = stop
        self._configuring = asyncio.Lock()
        self._applied_digest = ""
        self._journal_id = ""
        self.health = health_aio.HealthServicer()

    async def start(self) -> None:
        """Publish both health entries as not serving."""
        await self._publish(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def Handshake(  # noqa: N802
        self, request: control_pb2.HandshakeRequest, context: Context
    ) -> control_pb2.HandshakeResponse:
        """Agree on the highest common versions and prove the token over them."""
        convert.check_handshake(request, self._environment.instance_id)
        control_version = min(CONTROL_VERSIONS[1], request.control_versions.max)
        if control_version < max(CONTROL_VERSIONS[0], request.control_versions.min):
            raise self._incompatible(request, "control version")
        own = self._definition.contract
        if all(offered.kind != own.kind for offered in request.contracts):
            raise self._incompatible(request, "kind")
        if not any(convert.names_contract(offered, own) for offered in request.contracts):
            raise self._incompatible(request, "contract")
        _log.info("handshake with host %r", request.host_version)
        return self._proved(request, control_version, convert.contract_message(own))

    def _proved(
        self,
        request: control_pb2.HandshakeRequest,
        control_version: int,
        contract: control_pb2.ContractVersion,
    ) -> control_pb2.HandshakeResponse:
        transcript = Transcript(
            nonce=request.nonce,
            instance_id=self._environment.instance_id,
            kind=contract.kind,
            control_version=control_version,
            contract_version=f"{contract.major}.{contract.minor}",
            contract_digest=contract.digest,
        )
        return control_pb2.HandshakeResponse(
            control_version=control_version, contract=contract, proof=self._credentials.proof(transcript)
        )

    def _incompatible(self, request: control_pb2.HandshakeRequest, what: str) -> ServiceError:
        own = self._definition.contract
        offered = (f"{item.kind} {item.major}.{item.minor} {item.digest}" for item in request.contracts)
        metadata = {
            "provider_control_versions": "{}-{}".format(*CONTROL_VERSIONS),
            "host_control_versions": f"{request.control_versions.min}-{request.control_versions.max}",
            "provider_contracts": f"{own.kind} {own.version} {own.digest}",
            "host_contracts": ", ".join(offered),
        }
        return ServiceError(
            error_pb2.ERROR_REASON_CONTRACT_INCOMPATIBLE, f"host and provider have no common {what}", metadata
        )

    async def GetDescriptor(  # noqa: N802
        self, request: control_pb2.GetDescriptorRequest, context: Context
    ) -> control_pb2.GetDescriptorResponse:
        """Return the descriptor."""
        return control_pb2.GetDescriptorResponse(
            provider_descriptor=convert.descriptor_message(self._definition)
        )

    async def ValidateConfig(  # noqa: N802
        self, request: control_pb2.ValidateConfigRequest, context: Context
    ) -> control_pb2.ValidateConfigResponse:
        """List what is wrong with a configuration."""
        slots = convert.read_slots(list(request.secret_slots))
        found = self._violations(convert.read_config(request.config), slots)
        return control_pb2.ValidateConfigResponse(violations=convert.violation_messages(found))

    def _violations(self, config: Mapping[str, Any], slots: Set[str]) -> list[Violation]:
        declared = self._definition.slots_by_name
        found = violations(self._definition.config_schema, config)
        found += [
            Violation(f"/secrets/{name}", "declared", "is not a slot of this provider")
            for name in sorted(slots - declared.keys())
        ]
        found += [
            Violation(f"/secrets/{slot.name}", "required", "is required")
            for slot in declared.values()
            if slot.required and slot.name not in slots
        ]
        return found or list(self._provider.check(config, slots))

    async def Configure(  # noqa: N802
        self, request: control_pb2.ConfigureRequest, context: Context
    ) -> control_pb2.ConfigureResponse:
        """Apply a configuration, once."""
        config = convert.read_config(request.config)
        convert.check_digest(request.config, request.config_digest)
        secrets = convert.read_secrets(request.secrets, self._definition.slots_by_name)
        convert.check_provider_name(request.provider_name)
        async with self._configuring:
            if self._state.configured and request.config_digest != self._applied_digest:
                raise ServiceError(
                    error_pb2.ERROR_REASON_CONFIG_IMMUTABLE,
                    "the instance is configured; another configuration needs a new instance",
                    {"applied_digest": self._applied_digest},
                )
            if not self._state.configured:
                found = self._violations(config, secrets.keys())
                if found:
                    raise _config_invalid(found)
                self._conceal(secrets.values())
                self._journal_id = await self._apply(config, secrets, request.provider_name)
                self._applied_digest = request.config_digest
                self._state.configured = True
                if not self._state.draining:
                    await self._publish(health_pb2.HealthCheckResponse.SERVING)
                _log.info("configured as %r with %s", request.provider_name, request.config_digest)
        return control_pb2.ConfigureResponse(applied_digest=self._applied_digest, journal_id=self._journal_id)

    async def _apply(self, config: Mapping[str, Any], secrets: Mapping[str, str], name: str) -> str:
        environment = replace(self._environment, provider_name=name)
        deadline = asyncio.timeout(CONFIGURE_SECONDS)
        try:
            async with deadline:
                return await self._provider.configure(config, secrets, environment) or ""
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise ServiceError(
                error_pb2.ERROR_REASON_BACKEND_UNAVAILABLE, "configuring did not end in time"
            ) from error

    async def Probe(  # noqa: N802
        self, request: control_pb2.ProbeRequest, context: Context
    ) -> control_pb2.ProbeResponse:
        """Report readiness; a provider that does not answer in time is not ready."""
        deadline = asyncio.timeout(PROBE_SECONDS)
        try:
            async with deadline:
                report = await self._provider.probe(deep=request.deep)
        except TimeoutError:
            if not deadline.expired():
                raise
            late = Condition(
                "ProbeAnswered",
                ConditionStatus.UNKNOWN,
                "TIMEOUT",
                "the provider's probe did not answer in time",
            )
            report = ProbeReport(ready=False, conditions=(late,))
        return convert.probe_message(
            report,
            declared=self._definition.capabilities,
            configured=self._state.configured,
            open_calls=self._state.starts.count,
        )

    async def Drain(  # noqa: N802
        self, request: control_pb2.DrainRequest, context: Context
    ) -> control_pb2.DrainResponse:
        """Refuse new work from now on and wait for open starts, as long as the call's deadline allows."""
        await self.begin_drain()
        loop = asyncio.get_running_loop()
        remaining = context.time_remaining()
        left = DRAIN_SECONDS if remaining is None else min(DRAIN_SECONDS, remaining - DRAIN_MARGIN_SECONDS)
        until = loop.time() + max(left, 0.0)
        async with asyncio.timeout_at(until + DRAIN_MARGIN_SECONDS / 2):
            running = await self._provider.drain()
        await self._state.starts.wait_empty(until - loop.time())
        return control_pb2.DrainResponse(in_flight=running + self._state.starts.count)

    async def begin_drain(self) -> None:
        """Take no new work from now on; idempotent."""
        self._state.draining = True
        await self.health.enter_graceful_shutdown()

    async def Shutdown(  # noqa: N802
        self, request: control_pb2.ShutdownRequest, context: Context
    ) -> control_pb2.ShutdownResponse:
        """Acknowledge, and let the process end."""
        grace = convert.read_grace(request.grace)
        await self.begin_drain()
        self._stop(grace)
        return control_pb2.ShutdownResponse()

    async def _publish(self, status: int) -> None:
        for service in ("", self._provider.service_name):
            await self.health.set(service, status)


def _config_invalid(found: list[Violation]) -> ServiceError:
    """Repeat the findings as JSON of paths and rules, as many as fit into an error."""
    listed: list[dict[str, str]] = []
    for item in clipped(found):
        candidate = [*listed, {"path": item.path, "rule": item.rule}]
        if len(json.dumps(candidate)) > MAX_VIOLATIONS_BYTES:
            break
        listed = candidate
    metadata = {"violations": json.dumps(listed), "count": str(len(found))}
    return ServiceError(
        error_pb2.ERROR_REASON_CONFIG_INVALID,
        f"the configuration breaks {len(found)} rules of the provider's schema",
        metadata,
    )
