"""The provider as the kit drives it: definition, configuration, readiness, end."""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence, Set
from importlib import metadata
from typing import Any, Final

import grpc.aio

from tyrum.error.v1 import error_pb2
from tyrum.isolation.v1 import isolation_pb2, isolation_pb2_grpc
from tyrum_local_spawn.convert import HANDLE_VERSION
from tyrum_local_spawn.crew import Crew
from tyrum_local_spawn.failures import Broken
from tyrum_local_spawn.posture import posture
from tyrum_local_spawn.runs import Runs
from tyrum_local_spawn.service import IsolationService
from tyrum_local_spawn.settings import MAX_CONCURRENT, SCHEMA, check_settings, read_settings
from tyrum_local_spawn.store import Store
from tyrum_provider_kit import (
    Cardinality,
    Condition,
    ConditionStatus,
    Environment,
    ProbeReport,
    ProviderDefinition,
    ServiceError,
    Violation,
)
from tyrum_provider_kit.journal import IDENTITY_FILE

PROVIDER_ID: Final = "tyrum.isolation.local-spawn"

_log = logging.getLogger(__name__)


class LocalSpawnProvider:
    """Starts plain host processes; it confines nothing and says so."""

    def __init__(self) -> None:
        self._definition = ProviderDefinition(
            provider_id=PROVIDER_ID,
            implementation_version=metadata.version("tyrum"),
            kind="isolation",
            cardinality=Cardinality.EXCLUSIVE,
            config_schema=SCHEMA,
            max_concurrent_operations=MAX_CONCURRENT,
            handle_versions=(HANDLE_VERSION,),
        )
        self._service = IsolationService(PROVIDER_ID)
        self._store: Store | None = None
        self._crew: Crew | None = None
        self._runs: Runs | None = None

    @property
    def definition(self) -> ProviderDefinition:
        """What the provider is."""
        return self._definition

    @property
    def service_name(self) -> str:
        """Full name of the domain service."""
        return isolation_pb2.DESCRIPTOR.services_by_name["IsolationService"].full_name

    @property
    def starting_methods(self) -> Set[str]:
        """None for the kit to guard.

        A repeated StartProcess must be answered while draining and at the limit, since it starts nothing.
        """
        return frozenset()

    def add_services(self, server: grpc.aio.Server) -> None:
        """Register the domain service."""
        isolation_pb2_grpc.add_IsolationServiceServicer_to_server(self._service, server)

    def check(self, config: Mapping[str, Any], slots: Set[str]) -> Sequence[Violation]:
        """Find what the schema cannot express."""
        return check_settings(config, uid=os.getuid())

    async def configure(
        self, config: Mapping[str, Any], secrets: Mapping[str, str], environment: Environment
    ) -> str:
        """Take possession of the state directory, settle what a predecessor left, start the spawner."""
        settings = read_settings(config)
        store = Store(environment.state_dir)
        crew = Crew(store.runs)
        try:
            await asyncio.to_thread(store.open)
            await asyncio.to_thread(store.sweep)
            runs = Runs(store, crew, settings)
            await runs.load()
            await crew.start()
        except BaseException as error:
            store.close()
            if isinstance(error, Broken):
                raise ServiceError(error_pb2.ERROR_REASON_BACKEND_UNAVAILABLE, error.message) from error
            raise
        runs.keep_watch()
        self._store, self._runs, self._crew = store, runs, crew
        self._service.open(runs, posture(settings, uid=os.getuid()))
        if settings.run_as is None:
            _log.warning("commands run as the gateway's user (uid %d) and are not confined", os.getuid())
        return store.identity

    async def probe(self, *, deep: bool) -> ProbeReport:
        """Report whether a start would be taken."""
        if self._runs is None or self._crew is None:
            return ProbeReport(ready=False)
        damage = self._runs.register.damage
        records = Condition(
            "RecordsIntact",
            ConditionStatus.FALSE if damage else ConditionStatus.TRUE,
            "STORE_CORRUPT" if damage else "",
            _damage_text(damage),
        )
        spawner = Condition(
            "SpawnerRunning", ConditionStatus.TRUE if self._crew.ready else ConditionStatus.FALSE
        )
        return ProbeReport(
            ready=not damage and self._crew.ready,
            conditions=(records, spawner),
            running=self._runs.register.running,
        )

    async def drain(self) -> int:
        """Start nothing new and return how many processes run."""
        if self._runs is None:
            return 0
        self._runs.drain()
        return self._runs.register.running

    async def shutdown(self, grace: float) -> None:
        """End what runs and let the spawner go."""
        if self._runs is not None:
            await self._runs.shutdown(grace)
        if self._crew is not None:
            await self._crew.stop()
        if self._store is not None:
            self._store.close()


def _damage_text(damage: Mapping[str, str]) -> str:
    if not damage:
        return ""
    name, problem = next(iter(damage.items()))
    others = f" and {len(damage) - 1} more" if len(damage) > 1 else ""
    return (
        f"{name}: {problem}{others}. Nothing new is started. Look at `runs` in the provider's state"
        " directory, settle what the named commands did, then move the damaged records away together with"
        f" `{IDENTITY_FILE}`, so that what they would have answered stays unknown, and restart."
    )
