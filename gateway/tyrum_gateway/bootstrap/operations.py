"""The operations listener wired to the parts of the gateway: what is ready, and what holds now."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog

from tyrum_gateway.app.alarms import Alarm, Alarms
from tyrum_gateway.bootstrap.compose import Composition
from tyrum_gateway.config.settings import Settings
from tyrum_gateway.domain.errors import TyrumError
from tyrum_gateway.storage import SqliteStore
from tyrum_gateway.telemetry.metrics import AlarmNow, Metrics, Present, ProviderNow
from tyrum_gateway.telemetry.ops import Operations, Readiness
from tyrum_provider_host.status import Lifecycle

log = structlog.get_logger(__name__)

WRITE_SECONDS = 3.0
"""How long the database may take for a write before the gateway counts as not ready."""

ROOM = 16 * 1024 * 1024
"""Bytes that are free again when a disk counts as full no more: twice the log of the database."""


@asynccontextmanager
async def operations(
    settings: Settings, parts: Composition, store: SqliteStore, metrics: Metrics | None
) -> AsyncGenerator[tuple[Readiness, str], None]:
    """Listen where `listen.ops` says; yields the readiness to be kept, and the address, empty without one.

    Raises:
        StateUnusable: The address cannot be listened on.
    """
    asking = asyncio.Lock()  # whoever asks meanwhile waits as well, and puts nothing more into the queue

    async def missing() -> list[str]:
        unwritable = await _unwritable(store, asking)
        if not unwritable:
            await _room(settings, parts.alarms)
        return [*unwritable, *parts.alarms.problems, *_missing(settings, parts)]

    readiness = Readiness(missing)
    address = settings.listen.ops
    if address is None or metrics is None:
        yield readiness, ""
        return

    async def measured() -> bytes:
        return metrics.text(await _present(parts, store, readiness))

    async with Operations(readiness, measured).listening(address.host, address.port) as bound:
        log.info("operations_served", address=bound)
        yield readiness, bound


async def _unwritable(store: SqliteStore, asking: asyncio.Lock) -> list[str]:
    """Say so when a write that changes nothing fails, or does not get through behind all others."""
    try:
        async with asyncio.timeout(WRITE_SECONDS), asking:
            await store.rewrite()
    except (TimeoutError, TyrumError):
        return ["database: takes no writes"]
    return []


async def _room(settings: Settings, alarms: Alarms) -> None:
    """End the alarm of a full disk when writes get through and there is room for some more."""
    if not alarms.active(Alarm.DISK_FULL):
        return
    disk = await asyncio.to_thread(os.statvfs, settings.state_dir)
    if disk.f_bavail * disk.f_frsize >= ROOM:
        alarms.ended(Alarm.DISK_FULL)


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
        ready=not await readiness.problems(),
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
        alarms=[
            AlarmNow(alarm.value, count, active=parts.alarms.active(alarm))
            for alarm, count in parts.alarms.counts.items()
        ],
    )
