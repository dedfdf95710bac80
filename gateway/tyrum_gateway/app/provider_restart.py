"""Starting a provider anew at an operator's request.

Invariant: the audit row is written before the restart takes effect.
"""

from collections.abc import Callable

from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.ports import Clock, Store
from tyrum_gateway.domain.principal import Principal


class ProviderRestart:
    """Restarts providers of one host."""

    def __init__(self, *, store: Store, clock: Clock, restart: Callable[[str], None]) -> None:
        self._store = store
        self._clock = clock
        self._restart = restart

    async def request(self, principal: Principal, name: str, lifecycle: str) -> None:
        """Record who restarts a provider that exists, and what became of it before; then restart it."""
        details = {
            "by": principal.name,
            "method": principal.method,
            "from": principal.origin,
            "lifecycle": lifecycle,
        }
        entry = AuditEntry("provider.restarted", principal.principal_id, name, details)
        await self._store.record([entry], self._clock.now())
        self._restart(name)
