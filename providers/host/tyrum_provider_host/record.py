"""What belongs to one instance, and what admission has found about it so far."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tyrum_provider_host.artifact import Artifact
from tyrum_provider_host.channel_client import ProviderChannel
from tyrum_provider_host.contracts import KindContract
from tyrum_provider_host.control_client import ControlClient
from tyrum_provider_host.descriptor import Descriptor
from tyrum_provider_host.isolation_types import Posture
from tyrum_provider_host.launch import InstanceDirectory, ProviderProcess
from tyrum_provider_host.logs import LogRing
from tyrum_provider_host.rejection import Rejected, Stage, StageResult
from tyrum_provider_host.spec import ProviderSpec, TimeBounds
from tyrum_provider_host.states import Facts
from tyrum_provider_host.status import Lease


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What admission needs to know about the host."""

    state_directory: Path
    """Directory of all providers' state directories."""
    runtime_directory: Path
    contracts: Mapping[str, KindContract]
    bounds: TimeBounds
    version: str
    uid: int
    concealed: Callable[[], Iterable[str]] = tuple
    """Gives the secrets that no provider's log may hold, besides those that the provider itself is given."""


class AdmissionRecord:
    """What admission has found about one instance so far; grows stage by stage."""

    def __init__(self, spec: ProviderSpec, ring: LogRing) -> None:
        self.spec = spec
        self.stage = Stage.ARTIFACT
        self.stages: tuple[StageResult, ...] = ()
        self.facts = Facts(required=spec.required_capabilities)
        self.ring = ring
        self.artifact: Artifact | None = None
        self.contract: KindContract | None = None
        self.descriptor: Descriptor | None = None
        self.config_digest: str | None = None
        self.journal_id = ""
        self.posture: Posture | None = None
        self.listening_at: float | None = None
        self.admitted_at: float | None = None

    def passed(self, stage: Stage, detail: str, **facts: Any) -> None:
        """Record that `stage` passed and what it showed, and go on to the next."""
        self.stages += (StageResult(stage, passed=True, detail=detail),)
        self.facts = replace(self.facts, **facts)
        order = list(Stage)
        self.stage = order[min(order.index(stage) + 1, len(order) - 1)]

    def failed(self, rejected: Rejected) -> None:
        """Record the refusal."""
        self.stages += (StageResult(rejected.stage, passed=False, detail=rejected.text),)
        match rejected.stage:
            case Stage.ARTIFACT | Stage.SPAWN:
                self.facts = replace(self.facts, artifact_problem=rejected.text)
            case Stage.SECRETS | Stage.CONFIG | Stage.CONFIGURE:
                self.facts = replace(self.facts, config_problem=rejected.text)
            case _:
                pass

    def lease(self, instance_id: str, generation: int) -> Lease:
        """Return the facts of an instance that passed every stage."""
        assert self.contract is not None
        assert self.descriptor is not None
        assert self.artifact is not None
        assert self.config_digest is not None
        return Lease(
            name=self.spec.name,
            kind=self.spec.kind,
            provider_id=self.descriptor.provider_id,
            contract_major=self.contract.major,
            contract_minor=self.contract.minor,
            contract_digest=self.contract.digest,
            implementation_version=self.descriptor.version_text,
            artifact_digest=self.artifact.digest,
            config_digest=self.config_digest,
            journal_id=self.journal_id,
            instance_id=instance_id,
            generation=generation,
            handle_versions=self.descriptor.handle_versions,
        )


class Instance:
    """A started provider process with everything that belongs to it."""

    def __init__(
        self,
        spec: ProviderSpec,
        process: ProviderProcess,
        directory: InstanceDirectory,
        bounds: TimeBounds,
        ring: LogRing,
    ) -> None:
        self.process, self.directory = process, directory
        self.channel = ProviderChannel(spec.name, directory.socket, mask=ring.masked)
        self.control = ControlClient(self.channel, bounds)
