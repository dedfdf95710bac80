"""Typed client of the control protocol and of gRPC health, for one provider instance (wire edge).

Invariant: every answer is checked against its limits before it becomes a value of ours; an answer that breaks
them raises `ContractViolation`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from google.protobuf.duration_pb2 import Duration
from grpc import aio
from grpc_health.v1 import health_pb2

from tyrum.provider.v1 import control_pb2, control_pb2_grpc
from tyrum_provider_host import descriptor as descriptors
from tyrum_provider_host.channel_client import ProviderChannel
from tyrum_provider_host.contracts import CONTROL_VERSION_MAX, CONTROL_VERSION_MIN, KindContract
from tyrum_provider_host.descriptor import Descriptor
from tyrum_provider_host.errors import MAX_TEXT, ProviderError
from tyrum_provider_host.logs import sanitise
from tyrum_provider_host.spec import Secret, TimeBounds
from tyrum_provider_host.states import ProbeFacts

_DOMAIN = "tyrum.provider.v1"
_HEALTH = "grpc.health.v1"
_MAX_LISTED = 64
"""Most entries of a list in an answer."""
_SILENT = "no reason given"


class ContractViolation(ProviderError):
    """The provider answered with something that its contract does not allow; the message names the field."""


@dataclass(frozen=True, slots=True)
class HandshakeAnswer:
    """What the provider chose, unverified."""

    control_version: int
    kind: str
    major: int
    minor: int
    digest: str
    proof: bytes


@dataclass(frozen=True, slots=True)
class Applied:
    """What the provider confirmed of its configuration."""

    digest: str
    journal_id: str
    """Identity of the journal from which it resolves operations; empty when it named none."""


@dataclass(frozen=True, slots=True)
class ConfigFinding:
    """One violation of the configuration."""

    path: str
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path or '/'}: {self.message} ({self.rule})"


class ControlClient:
    """Calls the control protocol of one instance. All methods raise what `ProviderChannel.unary` raises."""

    def __init__(self, channel: ProviderChannel, bounds: TimeBounds) -> None:
        self._channel, self._bounds = channel, bounds
        self._control = control_pb2_grpc.ProviderControlServiceStub(channel.channel)
        self._health: aio.UnaryUnaryMultiCallable[
            health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
        ] = channel.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )

    async def handshake(
        self, contracts: tuple[KindContract, ...], *, instance_id: str, nonce: bytes, host_version: str
    ) -> HandshakeAnswer:
        """Offer `contracts` and return the provider's choice."""
        request = control_pb2.HandshakeRequest(
            control_versions=control_pb2.VersionRange(min=CONTROL_VERSION_MIN, max=CONTROL_VERSION_MAX),
            contracts=[
                control_pb2.ContractVersion(
                    kind=item.kind, major=item.major, minor=item.minor, digest=item.digest
                )
                for item in contracts
            ],
            instance_id=instance_id,
            nonce=nonce,
            host_version=host_version,
        )
        answer = await self._channel.unary(
            self._control.Handshake,
            request,
            name="Handshake",
            domain=_DOMAIN,
            timeout=self._bounds.handshake,
        )
        return HandshakeAnswer(
            control_version=answer.control_version,
            kind=sanitise(answer.contract.kind, 32),
            major=answer.contract.major,
            minor=answer.contract.minor,
            digest=sanitise(answer.contract.digest, 80),
            proof=answer.proof,
        )

    async def descriptor(self) -> Descriptor:
        """Read and check the descriptor.

        Raises:
            DescriptorError: a field is missing or breaks its limits.
        """
        answer = await self._channel.unary(
            self._control.GetDescriptor,
            control_pb2.GetDescriptorRequest(),
            name="GetDescriptor",
            domain=_DOMAIN,
            timeout=self._bounds.descriptor,
        )
        return descriptors.check(answer.provider_descriptor)

    async def validate(self, config: bytes, slots: tuple[str, ...]) -> tuple[ConfigFinding, ...]:
        """Ask the provider for everything that is wrong with `config`."""
        answer = await self._channel.unary(
            self._control.ValidateConfig,
            control_pb2.ValidateConfigRequest(config=config, secret_slots=slots),
            name="ValidateConfig",
            domain=_DOMAIN,
            timeout=self._bounds.validate,
        )
        return tuple(
            ConfigFinding(self._said(item.path, 256), self._said(item.rule, 64), self._said(item.message))
            for item in answer.violations[:_MAX_LISTED]
        )

    async def configure(
        self, config: bytes, digest: str, secrets: Mapping[str, Secret], *, provider_name: str
    ) -> Applied:
        """Apply the configuration and project the secrets; return what the provider says it applied."""
        answer = await self._channel.unary(
            self._control.Configure,
            control_pb2.ConfigureRequest(
                config=config,
                config_digest=digest,
                secrets={slot: secret.reveal() for slot, secret in secrets.items()},
                provider_name=provider_name,
            ),
            name="Configure",
            domain=_DOMAIN,
            timeout=self._bounds.configure,
        )
        return Applied(sanitise(answer.applied_digest, 80), sanitise(answer.journal_id, 80))

    async def probe(self, declared: frozenset[str]) -> ProbeFacts:
        """Ask whether the provider can work now.

        Raises:
            ContractViolation: a declared capability has no state, or there are more than 64 conditions.
        """
        answer = await self._channel.unary(
            self._control.Probe,
            control_pb2.ProbeRequest(),
            name="Probe",
            domain=_DOMAIN,
            timeout=self._bounds.probe,
        )
        if len(answer.conditions) > _MAX_LISTED:
            raise ContractViolation(
                f"`conditions` has {len(answer.conditions)} entries, at most {_MAX_LISTED} are allowed"
            )
        known = {item.capability: item for item in answer.capabilities[:_MAX_LISTED]}
        silent = sorted(declared - known.keys())
        if silent:
            raise ContractViolation(
                f"Probe reports no state for the declared capabilities {', '.join(silent)}"
            )
        available = control_pb2.CAPABILITY_AVAILABILITY_AVAILABLE
        unavailable = {
            name: self._said(item.reason) or _SILENT
            for name, item in known.items()
            if name in declared and item.availability != available
        }
        failing = [
            f"{self._said(item.type, 64)}: {self._said(item.reason or item.message) or _SILENT}"
            for item in answer.conditions
            if item.status != control_pb2.CONDITION_STATUS_TRUE
        ]
        detail = "the probe answered ready" if answer.ready else "the probe answered not ready"
        if failing:
            detail = f"{detail}; not TRUE: {'; '.join(failing)}"
        # Conditions are what readiness rests on: one that is not TRUE outweighs the provider's own summary.
        return ProbeFacts(answer.ready and not failing, detail, MappingProxyType(unavailable))

    def _said(self, text: str, limit: int = MAX_TEXT) -> str:
        """Make text for people safe to show; names that something is compared with are never masked."""
        return sanitise(self._channel.mask(text), limit)

    async def serving(self, service: str) -> str | None:
        """Check the health of `service`; None when it is SERVING, otherwise the status it has."""
        answer = await self._channel.unary(
            self._health,
            health_pb2.HealthCheckRequest(service=service),
            name="Health.Check",
            domain=_HEALTH,
            timeout=self._bounds.health,
        )
        if answer.status == health_pb2.HealthCheckResponse.SERVING:
            return None
        names = health_pb2.HealthCheckResponse.ServingStatus
        return names.Name(answer.status) if answer.status in names.values() else f"status {answer.status}"

    async def drain(self) -> int:
        """Stop the intake; return how many domain operations were in flight at the end."""
        answer = await self._channel.unary(
            self._control.Drain,
            control_pb2.DrainRequest(),
            name="Drain",
            domain=_DOMAIN,
            timeout=self._bounds.drain,
        )
        return answer.in_flight

    async def shutdown(self) -> None:
        """Ask the instance to end within the grace of the bounds."""
        grace = Duration()
        grace.FromNanoseconds(int(self._bounds.shutdown_grace * 1e9))
        await self._channel.unary(
            self._control.Shutdown,
            control_pb2.ShutdownRequest(grace=grace),
            name="Shutdown",
            domain=_DOMAIN,
            timeout=self._bounds.shutdown_ack,
        )
