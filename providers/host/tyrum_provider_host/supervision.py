"""When an ended provider starts again, and when it does not. Pure: time comes in as a number.

Invariant: the window of the crash-loop limit runs on *healthy* time. Respawning, being unhealthy and waiting
in back-off do not forgive a crash; only time in which the provider was healthy does.
"""

from dataclasses import dataclass, replace

from tyrum_provider_host.spec import RestartPolicy


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The provider crashed too often: an operator must look."""

    exits: int


@dataclass(frozen=True, slots=True)
class Retry:
    """Start again after `delay` seconds, jitter not applied."""

    delay: float


@dataclass(frozen=True, slots=True)
class CrashLedger:
    """Unexpected ends of one provider, on its clock of healthy seconds."""

    exits: tuple[float, ...] = ()
    healthy_seconds: float = 0.0
    healthy_since: float | None = None

    def became_healthy(self, now: float) -> "CrashLedger":
        """Start the healthy clock; harmless when it runs."""
        return self if self.healthy_since is not None else replace(self, healthy_since=now)

    def became_unhealthy(self, now: float) -> "CrashLedger":
        """Stop the healthy clock; harmless when it stands."""
        return replace(self, healthy_seconds=self._clock(now), healthy_since=None)

    def ended(self, now: float, policy: RestartPolicy) -> tuple["CrashLedger", Retry | Quarantine]:
        """Record an unexpected end and decide what follows."""
        clock = self._clock(now)
        exits = (*(at for at in self.exits if clock - at < policy.crash_window), clock)
        ledger = CrashLedger(exits=exits, healthy_seconds=clock)
        if len(exits) >= policy.crash_limit:
            return ledger, Quarantine(len(exits))
        delay = min(policy.max_delay, policy.initial_delay * policy.factor ** (len(exits) - 1))
        return ledger, Retry(delay)

    def _clock(self, now: float) -> float:
        return self.healthy_seconds + (0.0 if self.healthy_since is None else now - self.healthy_since)


def jittered(delay: float, policy: RestartPolicy, *, random: float) -> float:
    """Spread `delay` by the policy's share in both directions; `random` is uniform in [0, 1)."""
    return delay * (1.0 + policy.jitter * (2.0 * random - 1.0))
