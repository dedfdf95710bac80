"""Every run this provider knows, and the only place where one begins, is judged or is forgotten.

Invariants: an operation begins at most once, whatever arrives twice or late; what is answered about it is
answered from a durable record or from the supervisor that owns the run; a damaged record stops new starts.
"""

import asyncio
import contextlib
import functools
import hmac
import logging
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Final, assert_never

from tyrum_local_spawn.admission import Admission, failure_of
from tyrum_local_spawn.crew import Crew
from tyrum_local_spawn.failures import (
    Broken,
    Damaged,
    Failure,
    Reused,
    StillRunning,
    Unknown,
    WaitExpired,
)
from tyrum_local_spawn.ids import OperationId, ProcessId
from tyrum_local_spawn.link import Chunk, NotStarted, Started, SupervisorGone, SupervisorLink
from tyrum_local_spawn.run import Run, RunView, StartRequest
from tyrum_local_spawn.settings import Settings
from tyrum_local_spawn.store import Damage, RunRecord, Store
from tyrum_local_spawn.supervision.frames import MAX_CHUNK_BYTES
from tyrum_local_spawn.supervision.order import Order
from tyrum_local_spawn.supervision.record import (
    Cause,
    DamagedRecord,
    ExitRecord,
    Refusal,
    Tombstone,
)

_START_SECONDS: Final = 9.0
_FULL_SECONDS: Final = 0.005
"""How long a start waits before it looks again whether the spawner takes more orders."""
_SMALL_EVIDENCE_BYTES: Final = 16 * 1024
"""Evidence up to this size stays in memory; more is read from the record when it is asked for."""
_SOFT_END_SECONDS: Final = 1.0
_HARD_END_SECONDS: Final = 0.6
_SWEEP_SECONDS: Final = 3600.0

_log = logging.getLogger(__name__)


class Runs:
    """The registry. All methods belong to one event loop."""

    def __init__(self, store: Store, crew: Crew, settings: Settings) -> None:
        self._store = store
        self._crew = crew
        self._settings = settings
        self._runs: dict[OperationId, Run] = {}
        self._by_process: dict[ProcessId, Run] = {}
        self._tombstones: dict[OperationId, Tombstone] = {}
        self._damage: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._admission = Admission(settings, store)

    async def load(self) -> None:
        """Take over what a predecessor recorded; called once, before anything starts.

        However old it is: the gateway may have been away for longer than the retention, and asks now.
        """
        try:
            self._admission.key = await asyncio.to_thread(self._store.digest_key)
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
                    self._adopt(run)
                    self._conclude(run, end)
                case Tombstone():
                    self._tombstones[OperationId(found.operation_id)] = found
                case Damage(operation_id=operation_id, problem=problem):
                    _log.error("record of %s is damaged: %s", operation_id, problem)
                    self._damage[operation_id] = problem
                case _:
                    assert_never(found)

    @property
    def running(self) -> int:
        """How many runs are starting or running."""
        return sum(run.running for run in self._runs.values())

    @property
    def damage(self) -> dict[str, str]:
        """What is damaged, by operation id or file name, and how."""
        return dict(self._damage)

    def drain(self) -> None:
        """Start nothing new from now on."""
        self._admission.open = False

    def begin(self, request: StartRequest) -> Run:
        """Give the order for a run, or return the one that an equal request began; `begun` tells the rest.

        Raises:
            Failure: nothing was started by this call.
        """
        operation_id = OperationId(request.order.operation_id)
        self._check_record(operation_id)
        if not self._admission.key:
            raise Damaged("the key of the records is damaged; nothing can be compared with them")
        digest = self._admission.digest(request)
        if operation_id in self._tombstones:
            raise Reused("the operation was resolved as never started")
        run = self._runs.get(operation_id)
        if run is not None:
            if not hmac.compare_digest(run.digest, digest):
                raise Reused("the operation id stands for another request")
            return run
        if self._damage:
            raise Damaged("records are damaged; nothing new is started until an operator has looked")
        owner = self._by_process.get(ProcessId(request.order.process_id))
        self._admission.check(request, self._runs.values(), owner)
        order = replace(
            request.order,
            spec_digest=digest,
            spool_bytes=self._settings.spool_bytes_per_stream,
            run_as=self._settings.run_as,
        )
        run = Run(operation_id, ProcessId(order.process_id), digest)
        run.link = self._crew.summon(order, functools.partial(self._conclude, run))
        self._adopt(run)
        self._spawn(self._live(run, order, run.link))  # it goes on when the caller leaves
        return run

    async def begun(self, run: Run, linger: float) -> RunView:
        """Return a run that was begun, once it has ended or after `linger` seconds.

        Raises:
            Failure: nothing was started by this call; of an earlier equal one, the same failure is repeated.
        """
        if linger > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(linger):
                    await run.settled.wait()
        await run.begun.wait()
        if run.failure is not None:
            raise run.failure
        if run.end is not None and run.end.cause is Cause.START_FAILED:
            raise failure_of(run.end.refusal or Refusal.INTERNAL, run.end.detail, "spec.argv")
        self._check_record(run.operation_id)
        return await self._with_evidence(run)

    async def _live(self, run: Run, order: Order, link: SupervisorLink | None) -> None:
        """Take a run from its order to its end."""
        try:
            await self._see_begun(run, order, link)
        except Failure as failure:
            run.failure = failure
            return
        finally:
            run.begun.set()
        try:
            if run.link is not None:
                await run.link.over()
            if run.running:
                run.kill_leader()
                await self._settle(run)
        finally:
            run.let_go()

    async def _see_begun(self, run: Run, order: Order, link: SupervisorLink | None) -> None:
        outcome = await self._outcome(run, order, link)
        match outcome:
            case Started(started_at_ns=moment, leader=leader):
                run.started_at_ns = moment
                if leader is not None and run.running:
                    run.hold(leader)
            case NotStarted(record=record):
                if record is None:
                    self._forget(run)
                else:
                    self._conclude(run, record)
                raise failure_of(outcome.refusal, outcome.message, outcome.field)
            case None:
                await self._settle(run)
                if run.started_at_ns is None:
                    raise Broken("the supervisor ended before it reported the start")
            case _:
                assert_never(outcome)

    async def _outcome(
        self, run: Run, order: Order, link: SupervisorLink | None
    ) -> Started | NotStarted | None:
        """Return what became of an order; None when its supervisor ended, or was hung up on, silently."""
        try:
            async with asyncio.timeout(_START_SECONDS):
                while link is None:
                    await asyncio.sleep(_FULL_SECONDS)
                    link = run.link = self._crew.summon(order, functools.partial(self._conclude, run))
                return await link.outcome()
        except Broken:
            self._forget(run)
            raise
        except (TimeoutError, SupervisorGone):
            # A supervisor that still gets this order sees the closed link before it executes anything.
            if link is not None:
                link.close()
            return None

    async def _settle(self, run: Run) -> None:
        """Ask the disk how a run ended whose supervisor does not say it any more."""
        try:
            found = await asyncio.to_thread(self._store.load, run.operation_id)
        finally:
            run.link = None
        match found:
            case RunRecord(exit=ExitRecord() as end):
                self._conclude(run, end)
            case Damage(problem=problem) if (self._store.runs / run.operation_id).exists():
                self._damage[run.operation_id] = run.damage = problem
                run.settled.set()
            case _:
                run.settled.set()
                self._forget(run)

    async def view(self, process_id: ProcessId, *, evidence: bool = True) -> RunView:
        """Return one run as of now.

        Raises:
            Unknown: it is not known, or was released.
            Damaged: its record, or one that may be its, is damaged.
        """
        run = self._find(process_id)
        return await self._with_evidence(run) if evidence else run.view()

    async def wait(self, process_id: ProcessId, timeout: float) -> RunView:
        """Return the run once it has ended, within `timeout` seconds.

        Raises:
            WaitExpired: it still runs.
            Failure: as for `view`.
        """
        run = self._find(process_id)
        try:
            async with asyncio.timeout(timeout if run.running else None):
                await run.settled.wait()
        except TimeoutError:
            raise WaitExpired("the process still runs") from None
        self._check_record(run.operation_id)
        if run.end is None:
            raise Unknown("the record of the process was removed", {"process_id": process_id})
        return await self._with_evidence(run)

    async def resolve(self, operation_id: OperationId) -> RunView | Tombstone:
        """Return the run that an operation began, or the durable promise that it never will begin one.

        Raises:
            Damaged: the record of the operation is damaged.
        """
        self._check_record(operation_id)
        if (tombstone := self._tombstones.get(operation_id)) is not None:
            return tombstone
        if (run := self._runs.get(operation_id)) is not None:
            await run.begun.wait()
            if self._runs.get(operation_id) is run:
                self._check_record(operation_id)
                return await self._with_evidence(run)
        return await self._entomb(operation_id)

    async def _entomb(self, operation_id: OperationId) -> RunView | Tombstone:
        tombstone = await asyncio.to_thread(self._store.entomb, operation_id)
        if tombstone is not None:
            self._tombstones[operation_id] = tombstone
            return tombstone
        # A record that this process did not know: a supervisor wrote it after it had been given up.
        found = await asyncio.to_thread(self._store.load, operation_id)
        match found:
            case Tombstone():
                self._tombstones[operation_id] = found
                return found
            case RunRecord(journal=journal, exit=ExitRecord() as end):
                run = Run(operation_id, ProcessId(journal.process_id), journal.spec_digest)
                self._adopt(run)
                self._conclude(run, end)
                return await self._with_evidence(run)
            case Damage(problem=problem):
                self._damage[operation_id] = problem
            case _:
                pass
        self._check_record(operation_id)
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

    def find(self, process_id: ProcessId) -> Run:
        """Return a run for reading its output.

        Raises:
            Failure: as for `view`.
        """
        return self._find(process_id)

    def cancel(self, process_id: ProcessId, grace: float | None) -> RunView:
        """Ask for the end of a run and return its state at that moment; without `grace` the start's counts.

        Raises:
            Failure: as for `view`.
        """
        run = self._find(process_id)
        if run.link is not None:
            run.link.cancel(Cause.CANCELLED, grace)
        return run.view()

    async def release(self, process_id: ProcessId) -> None:
        """Forget an ended run and free what it occupies; an unknown one is forgotten already.

        Raises:
            StillRunning: it has not ended.
            Damaged: its record is damaged and stays.
        """
        run = self._by_process.get(process_id)
        if run is None:
            return
        self._check_record(run.operation_id)
        if run.running:
            raise StillRunning("the process is running")
        await asyncio.to_thread(self._store.release, run.operation_id)
        self._forget(run)

    async def sweep(self) -> None:
        """Release what is older than the retention."""
        horizon = time.time_ns() - self._settings.retention * 1_000_000_000
        for run in list(self._runs.values()):
            if run.end is not None and run.end.ended_at_ns < horizon and run.damage is None:
                await asyncio.to_thread(self._store.release, run.operation_id)
                self._forget(run)
        for operation_id, tombstone in list(self._tombstones.items()):
            if tombstone.recorded_at_ns < horizon:
                await asyncio.to_thread(self._store.release, operation_id)
                self._tombstones.pop(operation_id, None)

    def keep_watch(self) -> None:
        """Sweep from time to time, and watch over the spawner, for the life of the provider."""
        self._spawn(self._keep_sweeping())
        self._spawn(self._crew.keep())

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            await self.sweep()

    async def shutdown(self, grace: float) -> None:
        """Let runs end by themselves for `grace` seconds, then end them; returns shortly after that."""
        self.drain()
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        await self._all_settled(max(0.0, grace - _SOFT_END_SECONDS))
        for run in self._runs.values():
            if run.link is not None:
                run.link.cancel(Cause.PROVIDER_GONE, max(0.0, until - loop.time()))
        await self._all_settled(max(0.0, until - loop.time()) + _HARD_END_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _all_settled(self, timeout: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for run in list(self._runs.values()):
                    await run.settled.wait()

    def _adopt(self, run: Run) -> None:
        self._runs[run.operation_id] = run
        self._by_process[run.process_id] = run

    def _forget(self, run: Run) -> None:
        run.settled.set()
        if self._runs.get(run.operation_id) is run:
            del self._runs[run.operation_id]
        if self._by_process.get(run.process_id) is run:
            del self._by_process[run.process_id]

    def _conclude(self, run: Run, end: ExitRecord) -> None:
        size = sum(len(part) for stream in (end.stdout, end.stderr) for part in (stream.head, stream.tail))
        run.started_at_ns = run.started_at_ns or end.started_at_ns
        run.end = end if size <= _SMALL_EVIDENCE_BYTES else _without_evidence(end)
        run.link = None
        run.begun.set()
        run.settled.set()

    def _find(self, process_id: ProcessId) -> Run:
        run = self._by_process.get(process_id)
        if run is None or run.started_at_ns is None:
            if self._damage:
                raise Damaged("the process has no record, and damaged records may hide it")
            raise Unknown("no such process", {"process_id": process_id})
        self._check_record(run.operation_id)
        return run

    def _check_record(self, operation_id: OperationId) -> None:
        if operation_id in self._damage:
            raise Damaged("the record of the operation is damaged", {"operation_id": operation_id})

    async def _with_evidence(self, run: Run) -> RunView:
        view = run.view()
        if view.end is None or not _lacks_evidence(view.end):
            return view
        try:
            return replace(view, end=await asyncio.to_thread(self._store.exit_record, run.operation_id))
        except (DamagedRecord, OSError) as error:
            if self._runs.get(run.operation_id) is not run:  # released while it was read
                raise Unknown("no such process", {"process_id": run.process_id}) from error
            self._damage[run.operation_id] = run.damage = str(error)
            raise Damaged("the record of the operation is damaged") from error

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work that outlives the call; `shutdown` ends it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not isinstance(error, Failure):
            _log.error("work on a run failed", exc_info=error)


def _without_evidence(end: ExitRecord) -> ExitRecord:
    return replace(
        end,
        stdout=replace(end.stdout, head=b"", tail=b""),
        stderr=replace(end.stderr, head=b"", tail=b""),
    )


def _lacks_evidence(end: ExitRecord) -> bool:
    return any(stream.total_bytes > 0 and not stream.head for stream in (end.stdout, end.stderr))
