"""One state directory and the gateways that die on it.

A round is one kill: of the gateway, or of its provider. Before it counts, the victim's durable state is read:
a provider is killed while its gateway is frozen, so that what is read is what was there.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio
import psutil

from tests.soak import phases, verify
from tests.soak.people import Door, Notes, People
from tests.soak.phases import (
    BUSY,
    DECIDING,
    EXECUTING,
    GENERATING,
    HYDRATING,
    IDLE,
    LAUNCHING,
    RESTARTING,
    SETTLING,
)
from tests.soak.plan import ALLOWED, ASKED, BARRED
from tests.support import configs
from tests.support.client import Client
from tests.support.nursery import ForkedGateway, Nursery
from tyrum.catalog.v1 import catalog_pb2

ARMED = (HYDRATING, GENERATING, DECIDING, LAUNCHING, EXECUTING, SETTLING)
"""Phases in which a gateway can be made to die."""
PROVIDER_KILLS = 3
"""In one gateway's life: the fifth end of a provider in a row would be taken for a defect."""
START_SECONDS = 120.0
REST_SECONDS = 120.0
_DIE_SECONDS = 4.0
_WAIT_SECONDS = 4.0

RULES = """\
      - id: mark
        decision: allow
        author: the soak
        may_start_others: true
        match: {{tool: process.run, program: {programs}/{allowed}, replaceable: true}}
      - id: barred
        decision: deny
        match: {{tool: process.run, program: {programs}/{barred}}}
"""
PROGRAM = """\
#!/bin/sh
echo "$1" >>ran
[ "$2" = 0 ] || exec sleep "$2"
"""


@dataclass(slots=True)
class Tally:
    """What was killed when."""

    phases: Counter[str] = field(default_factory=Counter)
    """Kills at which at least one turn, or the provider, was in the phase."""
    gateways: int = 0
    providers: int = 0
    starts: list[float] = field(default_factory=list)
    """Seconds from each start to serving."""
    violations: list[str] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """All kills."""
        return self.gateways + self.providers

    def rarest(self, among: tuple[str, ...]) -> str:
        """The phase that was hit least."""
        return min(among, key=lambda phase: self.phases[phase])

    def add(self, other: "Tally") -> None:
        """Take another lane's tally in."""
        self.phases.update(other.phases)
        self.gateways += other.gateways
        self.providers += other.providers
        self.starts += other.starts
        self.violations += other.violations


class Lane:
    """Serves people while its gateways and providers are killed."""

    def __init__(
        self, directory: Path, name: str, seed: int, conversations: int, say: Callable[[str], None]
    ) -> None:
        self._directory = directory
        self._name = name
        self._chance = random.Random(f"{seed} {name}")
        self._door = Door()
        self._say = say
        self._people = People(self._door, name, self._chance, conversations)
        self._nursery = Nursery("tests.soak.gateway", directory)
        self._gateway = ForkedGateway(directory / "state", self._config(), nursery=self._nursery)
        self._gateway.patience = START_SECONDS
        self.tally = Tally()

    @property
    def database(self) -> Path:
        """The durable truth."""
        return self._directory / "state/tyrum.sqlite3"

    @property
    def notes(self) -> Notes:
        """What people were told."""
        return self._people.notes

    @property
    def ran(self) -> Path:
        """What the commands say of their executions."""
        return self._directory / "state/workspaces/default/ran"

    async def soak(self, rounds: int, batch: int) -> None:
        """Kill so often, and verify after each batch; end with the first violation."""
        living = asyncio.create_task(self._people.live())
        try:
            while self.tally.rounds < rounds and not self.tally.violations and not living.done():
                until = min(rounds, self.tally.rounds + batch)
                self._people.go()
                while self.tally.rounds < until and not living.done():
                    await self._life(until)
                await self._verify()
        finally:
            living.cancel()
            await asyncio.wait({living})
            self._gateway.kill()
            self._nursery.close()
        if not living.cancelled():
            living.result()

    async def _life(self, until: int) -> None:
        """One gateway: up to so many kills of its provider, then its own."""
        await self._start()
        async with self._door.opened(self._gateway) as client:
            for _ in range(self._chance.choice((0, 0, 1, 1, PROVIDER_KILLS))):
                if self.tally.rounds < until - 1:
                    await self._kill_provider(client)
            await self._kill_gateway(client)

    async def _verify(self) -> None:
        """Let everything come to rest under a gateway that nobody kills, and look."""
        await self._start()
        async with self._door.opened(self._gateway):
            rested = await self._people.rest(REST_SECONDS)
        self._gateway.kill()
        found = verify.violations(self.database, self.ran, self._people.notes)
        audit = await asyncio.to_thread(
            self._gateway.tyrum,
            *("audit", "verify", "--offline", "--state-dir", str(self._gateway.state_dir)),
            timeout=60,
        )
        if audit.returncode:
            found.append(f"audit: {audit.stdout.strip()} {audit.stderr.strip()}")
        if not rested:
            found += [f"no end within {REST_SECONDS:g} s: {turn}" for turn in self._people.unfinished()]
        self.tally.violations = found
        self._say(f"{self._name}: {self.tally.rounds} rounds, {len(found)} violations")

    async def _start(self) -> None:
        begun = time.perf_counter()
        await asyncio.to_thread(self._gateway.start)
        self.tally.starts.append(time.perf_counter() - begun)

    async def _kill_gateway(self, client: Client) -> None:
        """At a random moment, or in the phase that was hit least."""
        process = self._gateway.process
        assert process is not None
        armed = self._directory / "armed"
        if self._chance.random() < 0.5:
            await self._until(client, lambda lifecycle: lifecycle == catalog_pb2.PROVIDER_LIFECYCLE_ADMITTED)
        lifecycle = await self._lifecycle(client)
        if self._chance.random() < 0.4:
            draft = self._directory / "draft"
            draft.write_text(self.tally.rarest(ARMED), encoding="utf-8")
            draft.replace(armed)
            until = time.monotonic() + _DIE_SECONDS
            while process.poll() is None and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        else:
            await asyncio.sleep(self._chance.random() * 0.35)
            lifecycle = await self._lifecycle(client)
        gone = self._provider() is None
        await asyncio.to_thread(self._gateway.kill)
        armed.unlink(missing_ok=True)
        self._count(restarting=gone or lifecycle != catalog_pb2.PROVIDER_LIFECYCLE_ADMITTED)
        self.tally.gateways += 1

    async def _kill_provider(self, client: Client) -> None:
        """At a random moment; sometimes while it is coming back, sometimes while a command runs."""
        want = self.tally.rarest((IDLE, BUSY, RESTARTING))
        if want != RESTARTING:
            await self._until(client, lambda lifecycle: lifecycle == catalog_pb2.PROVIDER_LIFECYCLE_ADMITTED)
            await self._until(client, lambda _: (EXECUTING in self._phases()) == (want == BUSY))
        await asyncio.sleep(self._chance.random() * 0.1)
        lifecycle = await self._lifecycle(client)
        gateway = psutil.Process(self._gateway.pid)
        provider = self._provider()
        if provider is None:  # it is about to be started: wait for something that can be killed
            await self._until(client, lambda _: self._provider() is not None)
            lifecycle, provider = await self._lifecycle(client), self._provider()
        if provider is None:
            return
        gateway.suspend()
        try:
            try:
                self._count(restarting=lifecycle != catalog_pb2.PROVIDER_LIFECYCLE_ADMITTED)
            except phases.HeldUp:
                return  # another moment will do
            with suppress(psutil.NoSuchProcess):  # it had ended before the gateway was held up
                provider.kill()
        finally:
            gateway.resume()
        self.tally.providers += 1

    def _count(self, *, restarting: bool) -> None:
        found = self._phases()
        found.add(RESTARTING if restarting else BUSY if EXECUTING in found else IDLE)
        self.tally.phases.update(found)

    def _phases(self) -> set[str]:
        return set(phases.of_turns(self.database, self._directory / "trace"))

    def _provider(self) -> psutil.Process | None:
        try:
            children = psutil.Process(self._gateway.pid).children()
            return next((child for child in children if child.status() != psutil.STATUS_ZOMBIE), None)
        except psutil.NoSuchProcess:  # the gateway's end, or it has just buried the provider
            return None

    async def _until(self, client: Client, holds: Callable[[int], bool]) -> None:
        until = time.monotonic() + _WAIT_SECONDS
        while not holds(await self._lifecycle(client)) and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def _lifecycle(self, client: Client) -> int:
        try:
            answer = await client.catalog.GetProvider(
                catalog_pb2.GetProviderRequest(name="local"), metadata=client.metadata, timeout=10
            )
        except grpc.aio.AioRpcError:
            return 0
        return int(answer.provider.lifecycle)

    def _config(self) -> Path:
        programs = self._directory / "programs"
        programs.mkdir(parents=True)
        for name in (ALLOWED, ASKED, BARRED):
            (programs / name).write_text(PROGRAM, encoding="utf-8")
            (programs / name).chmod(0o755)
        return configs.write(
            self._directory,
            rules=RULES.format(programs=programs, allowed=ALLOWED, barred=BARRED),
            profile=f"path: [{programs}, /usr/bin, /bin]",
            more="limits: {attempts_per_step: 10, unfinished_turns_per_principal: 100000}",
        )
