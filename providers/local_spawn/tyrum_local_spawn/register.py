"""The register of runs: what is recorded about each, how it is judged and answered, and when it is forgotten.

Invariant: what is answered about an operation is answered from its durable record or from the supervisor
that owns the run; a damaged record is never passed over.
"""

import asyncio
import logging
import time
from collections.abc import Collection
from dataclasses import replace
from typing import Final, assert_never

from tyrum_local_spawn.failures import Broken, Damaged, Reused, StillRunning, Unknown, WaitExpired
from tyrum_local_spawn.ids import OperationId, ProcessId
from tyrum_local_spawn.link import Chunk, SupervisorGone
from tyrum_local_spawn.run import Run, RunView
from tyrum_local_spawn.store import Damage, Found, RunRecord, Store
from tyrum_local_spawn.supervision.frames import MAX_CHUNK_BYTES
from tyrum_local_spawn.supervision.record import DamagedRecord, ExitRecord, Tombstone

_SMALL_EVIDENCE_BYTES: Final = 16 * 1024
"""Evidence up to this size stays in memory; more is read from the record when it is asked for."""

_REMEMBERED: Final = 4096
"""Operations that began and whose records are gone; a successor keeps its records for its first hour."""

_SHORT_SECONDS: Final = 0.5
"""How long it waits for what this process lacks, such as a free descriptor."""

_log = logging.getLogger(__name__)


class Register:
    """All runs that have a record, or are about to. All methods belong to one event loop."""

    def __init__(self, store: Store, retention: int) -> None:
        self._store = store
        self._retention = retention
        self._runs: dict[OperationId, Run] = {}
        self._by_process: dict[ProcessId, Run] = {}
        self._tombstones: dict[OperationId, Tombstone] = {}
        self._damage: dict[str, str] = {}
        self._gone: dict[OperationId, None] = {}

    @property
    def journal_id(self) -> str:
        """Identity of the journal that the records are."""
        return self._store.identity

    @property
    def runs(self) -> Collection[Run]:
        """Every run that is known, as of now."""
        return list(self._runs.values())

    def known(self, operation_id: OperationId) -> Run | None:
        """Return the run of an operation; None when it may begin one.

        Raises:
            Damaged: its record is damaged.
            Reused: it was resolved as never started, or began and was forgotten.
        """
        self.check(operation_id)
        if operation_id in self._tombstones:
            raise Reused("the operation was resolved as never started")
        if operation_id in self._gone:
            raise Reused("the operation began before, and its record was released")
        return self._runs.get(operation_id)

    def owner(self, process_id: ProcessId) -> Run | None:
        """Return the run that has this process id."""
        return self._by_process.get(process_id)

    async def load(self) -> bytes:
        """Take over what a predecessor recorded; called once, before anything starts.

        However old it is: the gateway may have been away for longer than the retention, and asks now.

        Returns:
            The key of the records' digests; empty when it is damaged.
        """
        key = b""
        try:
            key = await asyncio.to_thread(self._store.digest_key)
        except DamagedRecord as error:
            _log.error("%s", error)
            self._damage["digest.key"] = str(error)
        for found in await asyncio.to_thread(self._store.scan):
            match found:
                case RunRecord(journal=journal, exit=end):
                    run = Run(
                        OperationId(journal.operation_id), ProcessId(journal.process_id), journal.spec_digest
                    )
                    assert end is not None  # the store settles what has no end
                    self.adopt(run)
                    self.conclude(run, end)
                case Tombstone():
                    self._tombstones[OperationId(found.operation_id)] = found
                case Damage(operation_id=operation_id, problem=problem):
                    _log.error("record of %s is damaged: %s", operation_id, problem)
                    self._damage[operation_id] = problem
                case _:
                    assert_never(found)
        return key

    @property
    def running(self) -> int:
        """How many runs are starting or running."""
        return sum(run.running for run in self._runs.values())

    @property
    def damage(self) -> dict[str, str]:
        """What is damaged, by operation id or file name, and how."""
        return dict(self._damage)

    def adopt(self, run: Run) -> None:
        """Take a run in."""
        self._runs[run.operation_id] = run
        self._by_process[run.process_id] = run

    def forget(self, run: Run) -> None:
        """Take a run out; who waits for it learns that it is gone."""
        run.settled.set()
        if self._runs.get(run.operation_id) is run:
            del self._runs[run.operation_id]
        if self._by_process.get(run.process_id) is run:
            del self._by_process[run.process_id]

    def conclude(self, run: Run, end: ExitRecord) -> None:
        """Record in memory how a run ended, as its durable record says."""
        size = sum(len(part) for stream in (end.stdout, end.stderr) for part in (stream.head, stream.tail))
        run.started_at_ns = run.started_at_ns or end.started_at_ns
        run.end = end if size <= _SMALL_EVIDENCE_BYTES else end.without_evidence()
        run.link = None
        run.begun.set()
        run.settled.set()

    async def recorded(self, run: Run) -> bool:
        """Tell whether the operation has a record; without one its command has not executed."""
        return await asyncio.to_thread(self._store.has_record, run.operation_id)

    async def settle(self, run: Run) -> None:
        """Ask the disk how a run ended whose supervisor does not say it any more."""
        try:
            found = await self._loaded(run.operation_id)
        finally:
            run.link = None
        match found:
            case RunRecord(exit=ExitRecord() as end):
                self.conclude(run, end)
            case Damage(problem=problem) if (self._store.runs / run.operation_id).exists():
                self._damage[run.operation_id] = run.damage = problem
                run.settled.set()
            case _:
                run.settled.set()
                self.forget(run)

    async def _loaded(self, operation_id: OperationId) -> Found:
        while True:
            try:
                return await asyncio.to_thread(self._store.load, operation_id)
            except OSError as error:
                _log.warning("the record of %s cannot be read now: %s", operation_id, error.strerror)
            await asyncio.sleep(_SHORT_SECONDS)

    def check(self, operation_id: OperationId) -> None:
        """Insist that an operation's record is sound.

        Raises:
            Damaged: it is not.
        """
        if operation_id in self._damage:
            raise Damaged("the record of the operation is damaged", {"operation_id": operation_id})

    async def find(self, process_id: ProcessId) -> Run:
        """Return a run once it is known whether it executes: its command may before its start is answered.

        Raises:
            Failure: as for `view`.
        """
        if (starting := self._by_process.get(process_id)) is not None:
            await starting.begun.wait()
        run = self._by_process.get(process_id)
        if run is None or run.started_at_ns is None:
            if self._damage:
                raise Damaged("the process has no record, and damaged records may hide it")
            raise Unknown("no such process", {"process_id": process_id})
        self.check(run.operation_id)
        return run

    async def view(self, process_id: ProcessId, *, evidence: bool = True) -> RunView:
        """Return one run as of now.

        Raises:
            Unknown: it is not known, or was released.
            Damaged: its record, or one that may be its, is damaged.
        """
        run = await self.find(process_id)
        return await self.with_evidence(run) if evidence else run.view()

    async def wait(self, process_id: ProcessId, timeout: float) -> RunView:
        """Return the run once it has ended, within `timeout` seconds.

        Raises:
            WaitExpired: it still runs.
            Failure: as for `view`.
        """
        until = asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout_at(until):
                run = await self.find(process_id)
            async with asyncio.timeout_at(until if run.running else None):
                await run.settled.wait()
        except TimeoutError:
            raise WaitExpired("the process still runs") from None
        self.check(run.operation_id)
        if run.end is None:
            raise Unknown("the record of the process was removed", {"process_id": process_id})
        return await self.with_evidence(run)

    async def resolve(self, operation_id: OperationId) -> RunView | Tombstone:
        """Return the run that an operation began, or the durable promise that it never will begin one.

        Raises:
            Damaged: the record of the operation is damaged.
            Broken: the promise cannot be recorded, or the operation began and its record is gone.
        """
        self.check(operation_id)
        if operation_id in self._gone:
            raise Broken("the operation began, and its record was released")
        if (tombstone := self._tombstones.get(operation_id)) is not None:
            return tombstone
        if (run := self._runs.get(operation_id)) is not None:
            await run.begun.wait()
            if self._runs.get(operation_id) is run:
                self.check(operation_id)
                return await self.with_evidence(run)
        return await self._entomb(operation_id)

    async def _entomb(self, operation_id: OperationId) -> RunView | Tombstone:
        try:
            found: Found | None = await asyncio.to_thread(self._store.entomb, operation_id)
            if found is None:
                # A record that this process did not know: a supervisor wrote it after it had been given up.
                found = await asyncio.to_thread(self._store.load, operation_id)
        except OSError as error:
            raise Broken(f"the state directory takes no record: {error.strerror}") from error
        match found:
            case Tombstone():
                self._tombstones[operation_id] = found
                return found
            case RunRecord(journal=journal, exit=ExitRecord() as end):
                run = Run(operation_id, ProcessId(journal.process_id), journal.spec_digest)
                self.adopt(run)
                self.conclude(run, end)
                return await self.with_evidence(run)
            case Damage(problem=problem):
                self._damage[operation_id] = problem
            case _:
                pass
        self.check(operation_id)
        raise Broken("the record of the operation changed while it was read")

    def listed(self, after: str, count: int) -> tuple[list[RunView], bool]:
        """Return runs in the order of their process ids, and whether there are more."""
        ids = sorted(
            process_id
            for process_id, run in self._by_process.items()
            if process_id > after and run.started_at_ns is not None
        )
        return [self._by_process[process_id].view() for process_id in ids[:count]], len(ids) > count

    async def read(self, run: Run, stream: int, offset: int, *, wait: bool) -> Chunk | None:
        """Read one chunk from a live run; None when it has ended and its spool is to be read."""
        if run.link is None:
            return None
        try:
            return await run.link.read(stream, offset, MAX_CHUNK_BYTES, wait=wait)
        except SupervisorGone:
            await run.settled.wait()
            return None

    async def read_ended(self, run: Run, stream: int, offset: int) -> Chunk:
        """Read one chunk of an ended run from its spool."""
        assert run.end is not None
        end = (run.end.stdout, run.end.stderr)[stream]
        piece = await asyncio.to_thread(
            self._store.read_spool, run.operation_id, stream, end, offset, MAX_CHUNK_BYTES
        )
        return Chunk(piece.offset, piece.data, piece.dropped_before, end.total_bytes)

    async def release(self, process_id: ProcessId) -> None:
        """Forget an ended run and free what it occupies; an unknown one is forgotten already.

        Raises:
            StillRunning: it has not ended.
            Damaged: its record is damaged and stays.
        """
        run = self._by_process.get(process_id)
        if run is None:
            return
        self.check(run.operation_id)
        if run.running:
            raise StillRunning("the process is running")
        await self._remove(run)

    async def _remove(self, run: Run) -> None:
        """Remove the record of a run, and remember that there was one: it must not be denied.

        Forgotten before, because nobody may look for what is leaving, even when this caller leaves meanwhile.
        """
        self._gone[run.operation_id] = None
        while len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]
        self.forget(run)
        await asyncio.to_thread(self._store.release, run.operation_id)

    async def sweep(self) -> None:
        """Release what is older than the retention."""
        horizon = time.time_ns() - self._retention * 1_000_000_000
        for run in list(self._runs.values()):
            if run.end is not None and run.end.ended_at_ns < horizon and run.damage is None:
                await self._remove(run)
        for operation_id, tombstone in list(self._tombstones.items()):
            if tombstone.recorded_at_ns < horizon:
                await asyncio.to_thread(self._store.release, operation_id)
                self._tombstones.pop(operation_id, None)

    async def with_evidence(self, run: Run) -> RunView:
        """Return a run as of now, with the evidence that is kept on disk only.

        Raises:
            Failure: its record is damaged, cannot be read now, or was released meanwhile.
        """
        view = run.view()
        if view.end is None or not _lacks_evidence(view.end):
            return view
        try:
            return replace(view, end=await asyncio.to_thread(self._store.exit_record, run.operation_id))
        except (DamagedRecord, OSError) as error:
            if self._runs.get(run.operation_id) is not run:  # released while it was read
                raise Unknown("no such process", {"process_id": run.process_id}) from error
            if isinstance(error, OSError):  # such as no free descriptor: it says nothing about the record
                raise Broken(f"the record cannot be read: {error.strerror}") from error
            self._damage[run.operation_id] = run.damage = str(error)
            raise Damaged("the record of the operation is damaged") from error


def _lacks_evidence(end: ExitRecord) -> bool:
    return any(stream.total_bytes > 0 and not stream.head for stream in (end.stdout, end.stderr))
