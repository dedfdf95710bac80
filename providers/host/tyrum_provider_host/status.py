"""What the host tells about a provider: its lifecycle, its states, and the facts a binding records."""

from dataclasses import dataclass
from enum import StrEnum

from tyrum_provider_host.descriptor import Descriptor
from tyrum_provider_host.isolation_types import Posture
from tyrum_provider_host.launch import Exit
from tyrum_provider_host.rejection import StageResult
from tyrum_provider_host.states import SixStates


class Lifecycle(StrEnum):
    """Where a provider is between start and stop."""

    STARTING = "starting"
    """Being admitted."""
    ADMITTED = "admitted"
    """Operations may bind."""
    SUSPENDED = "suspended"
    """Not healthy or not ready: nothing new binds, what runs goes on."""
    BACKING_OFF = "backing_off"
    """Ended unexpectedly; the next start waits."""
    REJECTED = "rejected"
    """Refused by admission; only another configuration or build helps."""
    QUARANTINED = "quarantined"
    """Crashed too often; an operator must look."""
    STOPPED = "stopped"
    """Stopping, stopped or not started yet."""


SETTLED = frozenset(
    {Lifecycle.ADMITTED, Lifecycle.REJECTED, Lifecycle.QUARANTINED, Lifecycle.SUSPENDED, Lifecycle.STOPPED}
)


@dataclass(frozen=True, slots=True)
class Lease:
    """The facts of an admitted instance that a binding records. Taking one binds nothing by itself."""

    name: str
    kind: str
    provider_id: str
    contract_major: int
    contract_minor: int
    contract_digest: str
    implementation_version: str
    artifact_digest: str
    config_digest: str
    journal_id: str
    """Journal from which the instance resolves operations; empty for a kind that resolves none."""
    instance_id: str
    generation: int
    """Counts the instances of this provider since the host started, from 1."""
    handle_versions: frozenset[int]

    @property
    def contract(self) -> str:
        """Kind and version, such as `isolation 1.0`."""
        return f"{self.kind} {self.contract_major}.{self.contract_minor}"


@dataclass(frozen=True, slots=True)
class ExitNotice:
    """An admitted instance has ended; calls in flight on it fail with `OutcomeUnknown`."""

    name: str
    instance_id: str
    generation: int
    exit: Exit
    expected: bool
    """Whether the host had asked it to end."""


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """A snapshot of one provider."""

    name: str
    kind: str
    lifecycle: Lifecycle
    states: SixStates
    stages: tuple[StageResult, ...]
    """Stages of the present instance's admission that were passed or failed, in order."""
    reason: str
    """Why it is not admitted, and what to do; empty when it is."""
    descriptor: Descriptor | None
    contract: str
    contract_digest: str
    artifact_digest: str
    config_digest: str
    instance_id: str
    """Present instance; empty when none runs."""
    generation: int
    pid: int | None
    posture: Posture | None
    trust_claims: bool
    """Whether the operator takes the provider's word for claims that were not verified here."""
    admissions: int
    """How often it has become admitted since the host started, by a start or back from being suspended."""
    recent_exits: int
    """Unexpected ends that count towards the crash-loop limit."""
    admission_seconds: float | None
    """From the first successful connect to the admission of the present instance."""
    log: tuple[str, ...]
    """Last lines of the provider's output, sanitised and redacted."""
