"""The one writing thread: what waits at the same time shares one database transaction.

Invariants: exactly this thread uses the writing connection; a job is applied whole or not at all and never
sinks its neighbours; a caller is answered only after the transaction is on the disk.

Jobs are applied together and without savepoints, as nearly all of them succeed. When one is refused, all are
taken back and applied anew with a savepoint each: a job may therefore run twice, and depends on nothing but
the database and its own value.

A caller that is cancelled while it waits gives up the answer, never the write: the job was handed over and
is applied like any other, and `unheard` is told of it. Closing applies everything handed over before.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tyrum_gateway.domain.errors import Draining, KernelBug, StateUnusable
from tyrum_gateway.storage.connection import failure
from tyrum_gateway.storage.overdue import Overdue
from tyrum_gateway.storage.transaction import Transaction

Result = TypeVar("Result")

GROUP = 64
"""Jobs that share one transaction at most: it bounds how long the first of them waits."""

COMPANY = 5
COMPANY_SECONDS = 0.002
"""After a transaction of so many jobs the next one waits so long for company, unless as many are there. Where
many turns run at once that costs them no time: fewer transactions are synced, and the interpreter changes
hands less often."""

ANSWER_SECONDS = 30.0
"""How long a caller waits for its answer. A group takes milliseconds; more means that the disk hangs."""


@dataclass(frozen=True, slots=True)
class _Job:
    apply: Callable[[Transaction], Any]
    future: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class _Done:
    result: Any


@dataclass(frozen=True, slots=True)
class _Undone:
    error: Exception


_Outcome = _Done | _Undone
_Applied = tuple[_Outcome, bool]
"""An outcome, and whether it changed anything."""


class Writer:
    """Runs jobs on the writing connection, in order of their arrival."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closing = False
        self.unheard: Callable[[Any], None] | None = None
        """Told, on the loop, what a job returned that was applied after its caller had given up."""
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self.commits = 0
        self.transactions = 0
        self._last = 0
        self._overdue = Overdue(ANSWER_SECONDS, self._too_slow)
        # Not waited for at interpreter exit: a loop that ended without closing acknowledges nothing more.
        self._thread = threading.Thread(target=self._work, name="tyrum-store-writer", daemon=True)
        self._thread.start()

    async def run(self, apply: Callable[[Transaction], Result]) -> Result:
        """Apply a job and return what it returned, after the commit.

        Raises:
            Draining: The writer is closing.
            StateUnusable: The database failed, or did not answer in time; then whether the job was applied
                is not known.
            KernelBug: The job broke a constraint of the schema and changed nothing.
        """
        if self._closing:
            raise Draining("the gateway is shutting down")
        future: asyncio.Future[Result] = self._loop.create_future()
        self._overdue.add(future)
        self._queue.put(_Job(apply, future))
        try:
            return await future
        except asyncio.CancelledError:
            # Cancelled in the very moment between the answer and its arrival here.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._applied_unheard(future.result())
            raise

    async def close(self) -> None:
        """Apply what waits, end the thread and close the connection; again is harmless.

        Raises:
            StateUnusable: The database did not finish in time.
        """
        if not self._closing:
            self._closing = True
            self._queue.put(None)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await asyncio.shield(self._finished)
        except TimeoutError as error:
            raise self._too_slow() from error
        finally:
            self._overdue.close()

    def _work(self) -> None:
        going = True
        while going:
            jobs, going = self._gather()
            self._last = len(jobs)
            if jobs:
                outcomes = self._write(jobs)
                self._tell(self._answer, list(zip(jobs, outcomes, strict=True)))
        self._connection.close()
        self._tell(_finish, self._finished)

    def _gather(self) -> tuple[list[_Job], bool]:
        jobs: list[_Job] = []
        item = self._queue.get()
        if item is not None and self._last >= max(COMPANY, self._queue.qsize() + 2):
            time.sleep(COMPANY_SECONDS)
        while item is not None:
            jobs.append(item)
            if len(jobs) == GROUP:
                return jobs, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return jobs, True
        return jobs, False

    def _write(self, jobs: Sequence[_Job]) -> list[_Outcome]:
        transaction = Transaction(self._connection)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            applied = self._together(jobs, transaction)
            if applied is None:
                self._connection.execute("BEGIN IMMEDIATE")
                applied = [self._apart(job, transaction) for job in jobs]
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            return [_Undone(failure(self._path, error)) for _ in jobs]
        # Only now: whoever sees the count finds what was counted.
        self.transactions += 1
        self.commits += sum(changed for _, changed in applied)
        return [outcome for outcome, _ in applied]

    def _together(self, jobs: Sequence[_Job], transaction: Transaction) -> list[_Applied] | None:
        """Apply jobs, with what each of them changed; None, and no transaction, when one was refused."""
        applied: list[_Applied] = []
        try:
            for job in jobs:
                before = transaction.changes
                result = job.apply(transaction)
                applied.append((_Done(result), transaction.changes > before))
            transaction.flush()
        except Exception:  # noqa: BLE001 - whose it is shows when each is applied apart
            self._roll_back()
            transaction.discard()
            return None
        return applied

    def _apart(self, job: _Job, transaction: Transaction) -> _Applied:
        execute = self._connection.execute
        before = transaction.changes
        execute("SAVEPOINT job")
        try:
            result = job.apply(transaction)
            transaction.flush()
        except Exception as error:  # the caller gets it; its neighbours must not notice
            if isinstance(error, sqlite3.Error) and not self._connection.in_transaction:
                raise  # SQLite has ended the whole transaction, as it may on a full disk
            execute("ROLLBACK TO job")
            execute("RELEASE job")
            transaction.discard()
            return _Undone(self._explain(error)), False
        execute("RELEASE job")
        return _Done(result), transaction.changes > before

    def _roll_back(self) -> None:
        # A full disk has ended the transaction already.
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def _explain(self, error: Exception) -> Exception:
        match error:
            case sqlite3.IntegrityError():
                bug = KernelBug("a write broke a rule of the schema", problem=str(error))
                bug.__cause__ = error
                return bug
            case sqlite3.Error():
                return failure(self._path, error)
            case _:
                return error

    def _answer(self, answers: Sequence[tuple[_Job, _Outcome]]) -> None:
        for job, outcome in answers:
            match outcome:
                case _Done(result):
                    if not job.future.done():
                        job.future.set_result(result)
                    else:
                        self._applied_unheard(result)
                case _Undone(error):
                    if not job.future.done():
                        job.future.set_exception(error)

    def _applied_unheard(self, result: object) -> None:
        if self.unheard is not None:
            # By itself: whatever becomes of it, the others get their answers.
            self._loop.call_soon(self.unheard, result)

    def _too_slow(self) -> StateUnusable:
        return StateUnusable(
            f"the database {self._path} took no write within {ANSWER_SECONDS:.0f} s", file=str(self._path)
        )

    def _tell(self, callback: Callable[[Any], None], value: object) -> None:
        # A loop that is closed has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, value)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
