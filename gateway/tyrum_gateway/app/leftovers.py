"""What a provider still has of calls that are settled: running commands and records.

Invariants: whenever a provider is admitted, by its start or after it was away, a command whose call is
settled is ended, and the record of a settled call that has ended is released. A call that executes is left
alone, and so is what no call of this gateway began.
"""

import asyncio
from collections.abc import Sequence

import structlog

from tyrum_gateway.domain.errors import ProviderUnavailable, StateUnusable
from tyrum_gateway.domain.ports import RunRecords, Store

log = structlog.get_logger(__name__)

_PAUSE = 5.0
"""Seconds until records are looked at again that could not be read."""


class Leftovers:
    """Looks through the records of every profile's provider while it runs."""

    def __init__(self, store: Store, profiles: Sequence[RunRecords]) -> None:
        self._store = store
        self._profiles = profiles

    async def run(self) -> None:
        """Look whenever a provider is admitted; until cancelled."""
        async with asyncio.TaskGroup() as group:
            for records in self._profiles:
                group.create_task(self._follow(records))

    async def _follow(self, records: RunRecords) -> None:
        seen = 0
        while True:
            seen = await records.admitted_again(seen)
            while True:
                try:
                    await self.look(records)
                    break
                except (ProviderUnavailable, StateUnusable) as error:
                    log.warning("leftovers_unread", reason=error.public, **error.context)
                await asyncio.sleep(_PAUSE)

    async def look(self, records: RunRecords) -> None:
        """Look once.

        Raises:
            ProviderUnavailable: The provider cannot be asked now.
            StateUnusable: The database cannot.
        """
        for run in await records.recorded():
            call = await self._store.executed(run.operation_id)
            if call is None or not call.state.final or not records.serves(call.execution):
                continue
            if run.running:
                log.warning("settled_run_ended", operation=run.operation_id, call_state=call.state)
                await records.cancel(call.execution)
            await records.release(call.execution)
