"""What a provider says about its readiness: facts; the kernel alone computes states from them (ARCH-29)."""

import datetime
import enum
from dataclasses import dataclass, field


class ConditionStatus(enum.Enum):
    """Whether a condition holds; UNKNOWN never counts as true."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@dataclass(frozen=True, slots=True)
class Condition:
    """One observed fact.

    `type` is 1 to 64 characters of [A-Za-z0-9], `reason` UPPER_SNAKE of at most 64 bytes, `message` text for
    the operator of at most 512 bytes, without secrets.
    """

    type: str
    status: ConditionStatus
    reason: str = ""
    message: str = ""
    observed_at: datetime.datetime = field(default_factory=_now)


@dataclass(frozen=True, slots=True)
class CapabilityState:
    """Whether one declared capability can be used now, and why not."""

    capability: str
    available: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The provider's own view of itself.

    `ready` counts only after Configure. A declared capability without a state here is reported as available
    when the provider is ready. `running` counts operations that outlive the call that began them; the kit
    adds the calls that are open.
    """

    ready: bool
    conditions: tuple[Condition, ...] = ()
    capabilities: tuple[CapabilityState, ...] = ()
    running: int = 0
