"""The operations listener wired to the parts of the gateway: what is ready, and what holds now."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog

from tyrum_gateway.bootstrap.compose import Composition
from tyrum_gateway.config.settings import Settings
from tyrum_gateway.storage import SqliteStore
from tyrum_gateway.telemetry.metrics import Metrics, Present, ProviderNow
from tyrum_gateway.telemetry.ops import Operations, Readiness
from tyrum_provider_host.status import Lifecycle

log = structlog.get_logger(__name__)


@asynccontextmanager
async def operations(
    settings: Settings, parts: Composition, store: SqliteStore, metrics: Metrics | None
) -> AsyncGenerator[tuple[Readiness, str], None]:
    """Listen where `listen.ops` says; yields the readiness to be kept, and the address, empty without one.

    Raises:
        StateUnusable: The address cannot be listened on.
    """
    readiness = Readiness(lambda: _missing(settings, parts))
    address = settings.listen.ops
    if address is None or metrics is None:
        yield readiness, ""
        return

    async def measured() -> bytes:
        return metrics.text(await _present(parts, store, readiness))

    async with Operations(readiness, measured).listening(address.host, address.port) as bound:
        log.info("operations_served", address=bound)
        yield readiness, bound


def _missing(settings: Settings, parts: Composition) -> list[str]:
    """Name the providers that an agent needs and that are not admitted."""
    profiles = (agent.isolation_profile for agent in settings.agents.values())
    needed = {settings.isolation_profiles[profile].provider for profile in profiles if profile is not None}
    lifecycles = {status.name: status.lifecycle for status in parts.host.statuses()}
    return [
        f"provider {name}: {found.value if (found := lifecycles.get(name)) else 'unknown'}"
        for name in sorted(needed)
        if lifecycles.get(name) is not Lifecycle.ADMITTED
    ]


async def _present(parts: Composition, store: SqliteStore, readiness: Readiness) -> Present:
    waiting, statistics = await store.backlog(), store.statistics
    return Present(
        ready=not readiness.problems(),
        providers=[
            ProviderNow(status.name, status.kind, status.lifecycle.value) for status in parts.host.statuses()
        ],
        lifecycles=[lifecycle.value for lifecycle in Lifecycle],
        commits=statistics.commits,
        transactions=statistics.transactions,
        working=parts.engine.working,
        streams=len(parts.sessions),
        pending=waiting.pending,
        unfinished=waiting.unfinished,
    )
