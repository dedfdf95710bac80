"""The six states of a provider, computed by the kernel from facts that it observed itself.

Invariant: a state is TRUE only when every fact it rests on was observed and holds; what was not observed is
UNKNOWN, and UNKNOWN never admits (ARCH-29, Capability state). Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from tyrum_provider_host.health import HealthRecord

PROVISIONAL = "provisional: no conformance evidence yet"


class StateName(StrEnum):
    """The six states in their order."""

    INSTALLED = "installed"
    CONFIGURED = "configured"
    READY = "ready"
    HEALTHY = "healthy"
    CAPABLE = "capable"
    DEGRADED = "degraded"


class StateValue(StrEnum):
    """Whether a state holds."""

    TRUE = "TRUE"
    FALSE = "FALSE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class State:
    """One state with what it rests on."""

    name: StateName
    value: StateValue
    reason: str


@dataclass(frozen=True, slots=True)
class ProbeFacts:
    """A provider's answer to Probe."""

    ready: bool
    detail: str
    unavailable: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Declared capabilities that cannot be used now, and why."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the host has observed about the present instance; None means not observed."""

    artifact: str | None = None
    """Digest, once taken."""
    artifact_problem: str | None = None
    alive: bool = False
    ended: str | None = None
    """How the last instance ended, when none runs."""
    authenticated: bool = False
    """The handshake proof was verified."""
    applied_config: str | None = None
    """Digest that Configure confirmed."""
    config_problem: str | None = None
    probe: ProbeFacts | None = None
    health: HealthRecord = field(default_factory=HealthRecord)
    declared: frozenset[str] | None = None
    """Capabilities of the checked descriptor."""
    required: frozenset[str] = frozenset()
    violation: str | None = None
    """The first answer by which the instance broke its contract."""


SixStates = tuple[State, State, State, State, State, State]


def compute(facts: Facts) -> SixStates:
    """Compute the six states."""
    return (
        _installed(facts),
        _configured(facts),
        _ready(facts),
        _healthy(facts),
        _capable(facts),
        _degraded(facts),
    )


def admits(states: SixStates) -> bool:
    """Tell whether operations may bind: the first five are TRUE."""
    return all(state.value is StateValue.TRUE for state in states[:5])


def _installed(facts: Facts) -> State:
    if facts.artifact_problem is not None:
        return State(StateName.INSTALLED, StateValue.FALSE, facts.artifact_problem)
    if facts.artifact is None:
        return State(StateName.INSTALLED, StateValue.UNKNOWN, "the artifact was not measured yet")
    return State(StateName.INSTALLED, StateValue.TRUE, f"artifact {facts.artifact}")


def _without_instance(facts: Facts) -> str:
    return f"no instance runs: it {facts.ended}" if facts.ended else "no instance runs"


def _configured(facts: Facts) -> State:
    if facts.config_problem is not None:
        return State(StateName.CONFIGURED, StateValue.FALSE, facts.config_problem)
    if not facts.alive:
        return State(StateName.CONFIGURED, StateValue.FALSE, _without_instance(facts))
    if facts.applied_config is None:
        return State(StateName.CONFIGURED, StateValue.UNKNOWN, "the configuration was not applied yet")
    return State(StateName.CONFIGURED, StateValue.TRUE, f"configuration {facts.applied_config} applied")


def _ready(facts: Facts) -> State:
    if not facts.alive:
        return State(StateName.READY, StateValue.FALSE, _without_instance(facts))
    if not facts.authenticated:
        return State(StateName.READY, StateValue.UNKNOWN, "the handshake is not proved yet")
    if facts.probe is None:
        return State(StateName.READY, StateValue.UNKNOWN, "not probed yet")
    value = StateValue.TRUE if facts.probe.ready else StateValue.FALSE
    return State(StateName.READY, value, facts.probe.detail)


def _healthy(facts: Facts) -> State:
    if not facts.alive:
        return State(StateName.HEALTHY, StateValue.FALSE, _without_instance(facts))
    match facts.health.healthy:
        case None:
            return State(StateName.HEALTHY, StateValue.UNKNOWN, facts.health.detail)
        case True:
            return State(StateName.HEALTHY, StateValue.TRUE, facts.health.detail)
        case False:
            return State(StateName.HEALTHY, StateValue.FALSE, facts.health.detail)


def _capable(facts: Facts) -> State:
    if not facts.alive:
        return State(StateName.CAPABLE, StateValue.FALSE, _without_instance(facts))
    if facts.declared is None or facts.probe is None:
        return State(StateName.CAPABLE, StateValue.UNKNOWN, "capabilities were not observed yet")
    missing = sorted(facts.required - facts.declared)
    if missing:
        return State(StateName.CAPABLE, StateValue.FALSE, f"not declared: {', '.join(missing)}")
    unavailable = sorted(facts.required & facts.probe.unavailable.keys())
    if unavailable:
        reasons = "; ".join(f"{name}: {facts.probe.unavailable[name]}" for name in unavailable)
        return State(StateName.CAPABLE, StateValue.FALSE, f"not available: {reasons}")
    return State(StateName.CAPABLE, StateValue.TRUE, PROVISIONAL)


def _degraded(facts: Facts) -> State:
    if not facts.alive or facts.probe is None:
        value = StateValue.UNKNOWN if facts.alive else StateValue.FALSE
        reason = "not probed yet" if facts.alive else _without_instance(facts)
        return State(StateName.DEGRADED, value, reason)
    if not facts.probe.ready:
        return State(StateName.DEGRADED, StateValue.FALSE, "not ready, so not merely degraded")
    if facts.violation is not None:
        reason = f"it answered against its contract, and what it said counts for nothing: {facts.violation}"
        return State(StateName.DEGRADED, StateValue.TRUE, reason)
    optional = {name: why for name, why in facts.probe.unavailable.items() if name not in facts.required}
    if not optional:
        return State(StateName.DEGRADED, StateValue.FALSE, "every declared capability is available")
    reasons = "; ".join(f"{name}: {why}" for name, why in sorted(optional.items()))
    return State(StateName.DEGRADED, StateValue.TRUE, reasons)
