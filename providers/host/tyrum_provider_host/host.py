"""The provider host: admits every configured provider, keeps them supervised, and hands out what may bind.

Invariant: what the operator configured is the only input to selection; the host starts every provider the
same way and leases none that is not admitted (ARCH-29, decisions 3 and 4).
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from tyrum_provider_host.contracts import KindContract, packaged_contracts
from tyrum_provider_host.errors import HostSetupError
from tyrum_provider_host.isolation import IsolationClient
from tyrum_provider_host.launch import LaunchError, prepare_runtime_directory, sweep
from tyrum_provider_host.record import HostFacts
from tyrum_provider_host.spec import ProviderSpec, RestartPolicy, TimeBounds
from tyrum_provider_host.status import SETTLED, ExitNotice, Lease, ProviderStatus
from tyrum_provider_host.supervisor import Supervisor

_log = logging.getLogger(__name__)


class ProviderHost:
    """Runs the configured providers between `start` and `stop`; usable as an asynchronous context manager.

    Args:
        specs: The operator's providers; names are unique.
        state_dir: The gateway's state directory; `providers/<name>` below it outlives instances.
        runtime_dir: Directory for sockets, owned by this user and short: a socket path has at most 100 bytes.
        version: Version of the gateway, for the providers' logs.
        bounds: Time bounds.
        restarts: Back-off and crash-loop limits.
        contracts: Contracts to admit, one per kind; the packaged ones unless a test needs others.
        on_exit: Called in the event loop as soon as an instance has ended.
    """

    def __init__(
        self,
        specs: Sequence[ProviderSpec],
        *,
        state_dir: Path,
        runtime_dir: Path,
        version: str = "",
        bounds: TimeBounds | None = None,
        restarts: RestartPolicy | None = None,
        contracts: Sequence[KindContract] | None = None,
        on_exit: Callable[[ExitNotice], None] | None = None,
        concealed: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        names = [spec.name for spec in specs]
        if len(set(names)) != len(names):
            raise ValueError("provider names must be unique")
        self._specs = tuple(specs)
        self._facts = HostFacts(
            state_directory=state_dir / "providers",
            runtime_directory=runtime_dir,
            contracts=MappingProxyType({item.kind: item for item in contracts or packaged_contracts()}),
            bounds=bounds or TimeBounds(),
            version=version,
            uid=os.geteuid(),
            concealed=concealed,
        )
        self._restarts = restarts or RestartPolicy()
        self._on_exit = on_exit
        self._supervisors: dict[str, Supervisor] = {}
        self._root: asyncio.Task[None] | None = None
        self._revision = 0
        self._waiters: set[asyncio.Future[None]] = set()

    async def start(self) -> None:
        """Sweep what dead hosts left behind and begin to admit all providers at once; does not wait for them.

        Raises:
            HostSetupError: the runtime directory is unusable.
        """
        try:
            await asyncio.to_thread(prepare_runtime_directory, self._facts.runtime_directory)
            swept = await asyncio.to_thread(sweep, self._facts.runtime_directory)
        except (LaunchError, OSError) as error:
            raise HostSetupError(str(error)) from None
        for path in swept:
            _log.info("removed %s of a host that is gone", path)
        self._supervisors = {
            spec.name: Supervisor(
                spec, self._facts, self._restarts, changed=self._notify, on_exit=self._exited
            )
            for spec in self._specs
        }
        self._root = asyncio.create_task(self._supervise(), name="provider-host")

    async def stop(self) -> None:
        """Drain and end all providers at once; no process and no instance directory remains. Idempotent."""
        root, self._root = self._root, None
        for supervisor in self._supervisors.values():
            supervisor.stop()
        if root is not None:
            await root

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def status(self, name: str) -> ProviderStatus:
        """Return a snapshot of the named provider.

        Raises:
            KeyError: no provider has this name, or the host was not started.
        """
        return self._supervisors[name].status()

    def statuses(self) -> tuple[ProviderStatus, ...]:
        """Return snapshots of all providers in the order of the configuration."""
        return tuple(supervisor.status() for supervisor in self._supervisors.values())

    def lease(self, name: str) -> Lease:
        """Return the facts that a binding to the named provider records.

        Raises:
            ProviderUnavailable: it is not admitted now.
            KeyError: no provider has this name.
        """
        return self._supervisors[name].lease()

    def isolation(self, name: str) -> IsolationClient:
        """Return a client for the present instance; a suspended one can be asked about its runs too.

        Raises:
            ProviderUnavailable: no admitted instance lives, or the provider is of another kind.
            KeyError: no provider has this name.
        """
        return self._supervisors[name].isolation()

    def restart(self, name: str) -> None:
        """Begin the named provider anew, whatever its lifecycle; returns at once.

        A living instance is drained and ended first, and its foreground runs with it. What counted towards
        quarantine is forgotten.

        Raises:
            KeyError: no provider has this name.
        """
        self._supervisors[name].restart()

    @property
    def revision(self) -> int:
        """Grows with every change of a status."""
        return self._revision

    async def wait_changed(self, since: int) -> int:
        """Return the present revision as soon as it is not `since`; bound it with `asyncio.timeout`."""
        while self._revision == since:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
        return self._revision

    async def wait_until(self, condition: Callable[[Self], bool], timeout: float) -> bool:
        """Return True as soon as `condition(self)` holds, False when it does not within `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                revision = self._revision
                while not condition(self):
                    revision = await self.wait_changed(revision)
        except TimeoutError:
            return condition(self)
        return True

    async def wait_settled(self, timeout: float) -> bool:
        """Wait until no provider is starting or backing off; False when `timeout` seconds were not enough."""
        return await self.wait_until(
            lambda host: all(status.lifecycle in SETTLED for status in host.statuses()), timeout
        )

    async def _supervise(self) -> None:
        async with asyncio.TaskGroup() as group:
            for supervisor in self._supervisors.values():
                group.create_task(supervisor.run(), name=f"provider-{supervisor.spec.name}")

    def _exited(self, notice: ExitNotice) -> None:
        if self._on_exit is not None:
            self._on_exit(notice)

    def _notify(self) -> None:
        self._revision += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
