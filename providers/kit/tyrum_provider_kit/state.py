"""The few facts about an instance that guard, control service and main loop share.

Invariant: they only move forward: unconfigured → configured, open → draining.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Gauge:
    """Counts what is inside, and lets one wait until nothing is."""

    def __init__(self) -> None:
        self.count = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Count one for the length of the block."""
        self.count += 1
        self._empty.clear()
        try:
            yield
        finally:
            self.count -= 1
            if not self.count:
                self._empty.set()

    async def wait_empty(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until nothing is inside; tell whether that came."""
        try:
            async with asyncio.timeout(timeout):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True


class InstanceState:
    """Where this instance stands in its life."""

    def __init__(self) -> None:
        self.configured = False
        self.draining = False
        self.starts = Gauge()
        """Open calls of starting methods: what `max_concurrent_operations` bounds."""
        self.domain_calls = Gauge()
        """All open domain calls, which a shutdown's grace waits for."""
