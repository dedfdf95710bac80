"""The one writing thread: what waits at the same time shares one database transaction.

Invariants: exactly this thread uses the writing connection; a job is applied whole or not at all and never
sinks its neighbours (a savepoint each); a caller is answered only after the transaction is on the disk.

A caller that is cancelled while it waits gives up the answer, never the write: the job was handed over and
is applied like any other. Closing applies everything handed over before.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tyrum_gateway.domain.errors import Draining, KernelBug, StateUnusable
from tyrum_gateway.storage.connection import failure

Result = TypeVar("Result")

GROUP = 64
"""Jobs that share one transaction at most: it bounds how long the first of them waits."""

ANSWER_SECONDS = 30.0
"""How long a caller waits for its answer. A group takes milliseconds; more means that the disk hangs."""


@dataclass(frozen=True, slots=True)
class _Job:
    apply: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class _Done:
    result: Any


@dataclass(frozen=True, slots=True)
class _Undone:
    error: Exception


_Outcome = _Done | _Undone


class Writer:
    """Runs jobs on the writing connection, in order of their arrival."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closing = False
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self.commits = 0
        self.transactions = 0
        self._changing = 0
        # Not waited for at interpreter exit: a loop that ended without closing acknowledges nothing more.
        self._thread = threading.Thread(target=self._work, name="tyrum-store-writer", daemon=True)
        self._thread.start()

    async def run(self, apply: Callable[[sqlite3.Connection], Result]) -> Result:
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
        self._queue.put(_Job(apply, future))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await future
        except TimeoutError as error:
            raise self._too_slow() from error

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

    def _work(self) -> None:
        going = True
        while going:
            jobs, going = self._gather()
            if jobs:
                outcomes = self._write(jobs)
                self._tell(_answer, list(zip(jobs, outcomes, strict=True)))
        self._connection.close()
        self._tell(_finish, self._finished)

    def _gather(self) -> tuple[list[_Job], bool]:
        jobs: list[_Job] = []
        item = self._queue.get()
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
        execute = self._connection.execute
        self._changing = 0
        try:
            execute("BEGIN IMMEDIATE")
            outcomes = [self._attempt(job) for job in jobs]
            execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                execute("ROLLBACK")
            return [_Undone(failure(self._path, error)) for _ in jobs]
        # Only now: whoever sees the count finds what was counted.
        self.transactions += 1
        self.commits += self._changing
        return outcomes

    def _attempt(self, job: _Job) -> _Outcome:
        execute = self._connection.execute
        before = self._connection.total_changes
        execute("SAVEPOINT job")
        try:
            result = job.apply(self._connection)
        except Exception as error:  # noqa: BLE001 - the caller gets it; its neighbours must not notice
            # When SQLite has ended the whole transaction (a full disk), this raises for all of them.
            execute("ROLLBACK TO job")
            execute("RELEASE job")
            return _Undone(self._explain(error))
        execute("RELEASE job")
        self._changing += self._connection.total_changes > before
        return _Done(result)

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

    def _too_slow(self) -> StateUnusable:
        return StateUnusable(
            f"the database {self._path} took no write within {ANSWER_SECONDS:.0f} s", file=str(self._path)
        )

    def _tell(self, callback: Callable[[Any], None], value: object) -> None:
        # A loop that is closed has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, value)


def _answer(answers: Sequence[tuple[_Job, _Outcome]]) -> None:
    for job, outcome in answers:
        if job.future.done():
            continue
        match outcome:
            case _Done(result):
                job.future.set_result(result)
            case _Undone(error):
                job.future.set_exception(error)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
