"""Starts the configured providers once, to see whether each is admitted; nothing binds to them."""

from collections.abc import Iterable

from tyrum_gateway.config.load import place_of
from tyrum_gateway.config.problems import Problem
from tyrum_gateway.config.profiles import profile_problems
from tyrum_gateway.config.providers import provider_specs
from tyrum_gateway.config.settings import Settings
from tyrum_provider_host import Lifecycle, ProviderHost, ProviderStatus

_SETTLING = 60.0
"""Seconds after the longest start that handshake, configuration, probe and health may take."""

_ENDED = frozenset({Lifecycle.ADMITTED, Lifecycle.REJECTED, Lifecycle.QUARANTINED, Lifecycle.BACKING_OFF})


def refusals(settings: Settings, statuses: Iterable[ProviderStatus]) -> list[Problem]:
    """Describe every provider that was not admitted as a problem at its key in the file."""
    return [
        Problem(
            str(settings.source),
            place_of(settings.source, "providers", status.name),
            ("providers", status.name),
            "not_admitted",
            status.reason or f"not admitted in time, still {status.lifecycle}",
        )
        for status in statuses
        if status.lifecycle is not Lifecycle.ADMITTED
    ]


def unusable(settings: Settings, statuses: Iterable[ProviderStatus]) -> list[Problem]:
    """Describe every profile that requires what its admitted provider does not prove, at that key."""
    return [
        Problem(
            str(settings.source),
            place_of(settings.source, *keys),
            keys,
            "not_proved",
            problem.message,
        )
        for problem in profile_problems(settings, statuses)
        for keys in [("profiles", "isolation", problem.profile, "required_claims")]
    ]


async def probe(settings: Settings) -> tuple[ProviderStatus, ...]:
    """Admit every provider, stop them, and return how far each came.

    Args:
        settings: bound to a temporary state directory that exists; sockets go below it too.

    Raises:
        HostSetupError: the directory cannot be used.
    """
    specs = provider_specs(settings)
    patience = _SETTLING + max((spec.start_timeout for spec in specs), default=0.0)
    directory = settings.state_dir
    async with ProviderHost(specs, state_dir=directory, runtime_dir=directory / "run") as host:
        # A provider that waits for its next start has failed this one.
        await host.wait_until(
            lambda host: all(status.lifecycle in _ENDED for status in host.statuses()), patience
        )
        return host.statuses()
