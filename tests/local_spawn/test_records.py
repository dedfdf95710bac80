"""Records between callers who leave, descriptors that run out and supervisors that are held up."""

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.local_spawn.driver import DEADLINE, Provider, context, limits, new_id, until
from tyrum.isolation.v1 import isolation_pb2 as pb
from tyrum_local_spawn import settling
from tyrum_local_spawn.convert import read_start
from tyrum_local_spawn.crew import LEAVE_SECONDS, Crew
from tyrum_local_spawn.failures import Broken, Unknown
from tyrum_local_spawn.ids import OperationId, ProcessId
from tyrum_local_spawn.runs import HARD_END_SECONDS, Runs
from tyrum_local_spawn.settings import read_settings
from tyrum_local_spawn.store import Store
from tyrum_local_spawn.supervision.record import Cause, Tombstone
from tyrum_provider_kit.serve import PROVIDER_MARGIN


class Place:
    """The provider without its wire: records, runs and spawner in this process."""

    def __init__(self, root: Path) -> None:
        self.provider = Provider(root)
        for directory in (self.provider.state_dir, self.provider.workspace):
            directory.mkdir(mode=0o700)
        self.store = Store(self.provider.state_dir)
        self.crew = Crew(self.store.runs)
        self.runs = Runs(self.store, self.crew, read_settings({}))

    async def begun(self, script: str, *, linger: float, wall: float = 60) -> ProcessId:
        """Run a script."""
        request = pb.StartProcessRequest(
            context=context(),
            operation_id=new_id("op"),
            process_id=new_id("proc"),
            spec=self.provider.shell(script, limits=limits(wall=wall)),
        )
        view = await self.runs.begun(self.runs.begin(read_start(request)), linger)
        return view.process_id


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """Give a place that takes starts, and end what it runs."""
    place = Place(tmp_path)
    place.store.open()
    await place.runs.load()
    await place.crew.start()
    yield place
    await place.runs.shutdown(0)
    await place.crew.stop()
    assert place.crew._process is not None
    async with asyncio.timeout(DEADLINE):  # longer than who stops the crew waits for it
        await place.crew._process.wait()
    place.store.close()


@contextlib.contextmanager
def few_descriptors(left: int) -> Iterator[None]:
    """Leave this process that many free descriptors for the length of the block, at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull, "rb") as lowest:  # noqa: PTH123 - its number is the lowest that is free
        free = lowest.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_shortage_of_descriptors_damages_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be opened for a while is answered as soon as it can, and nothing is taken for damage."""
    monkeypatch.setattr("tyrum_local_spawn.register._SHORT_SECONDS", 0.05)
    process = await place.begun("head -c 100000 /dev/zero", linger=30)
    note = place.provider.workspace / "supervisor"
    orphan = await place.begun(f"echo $PPID > {note}.new; mv {note}.new {note}; exec sleep 60", linger=0)
    await until(note.exists, "the command")
    supervisor, run = int(note.read_text("ascii")), place.runs.register.owner(orphan)
    with few_descriptors(0):
        with pytest.raises(Broken, match="open files"):
            await place.runs.register.view(process)
        with pytest.raises(Broken, match="open files"):
            await place.begun("exit 0", linger=0)
        os.kill(supervisor, signal.SIGKILL)
        await until(lambda: run is None or run.link is None or not run.link.open, "its end")
    assert place.runs.register.damage == {}
    view = await place.runs.register.view(process)
    assert view.end is not None
    assert len(view.end.stdout.head) + len(view.end.stdout.tail) == 100_000
    lost = await place.runs.register.wait(orphan, 30)
    assert lost.end is not None
    assert lost.end.cause is Cause.LOST


def test_a_supervisor_that_cannot_be_looked_at_is_not_taken_for_ended(tmp_path: Path) -> None:
    """Who lacks the descriptor to look for the journal's holder says so: the record is not damaged by it."""
    with subprocess.Popen(["/bin/sleep", "60"]) as other, (tmp_path / "journal").open("wb") as journal:
        try:
            settling.kill_holder(journal.fileno(), other.pid)
            assert other.poll() is None, "it holds nothing"
            with few_descriptors(1), pytest.raises(OSError, match="open files"):
                settling.kill_holder(journal.fileno(), other.pid)
        finally:
            other.kill()


async def test_the_spawner_is_replaced_once_there_is_a_thread_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That a replacement for a killed spawner cannot be started is no reason to try but once."""
    monkeypatch.setattr("tyrum_local_spawn.crew._RESTART_SECONDS", 0.05)
    start, refused = asyncio.create_subprocess_exec, asyncio.Event()

    async def short(*command: str, **options: Any) -> asyncio.subprocess.Process:
        if not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        return await start(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", short)
    spawner = place.crew._process
    assert spawner is not None
    keeping = asyncio.create_task(place.crew.keep())
    spawner.kill()
    await until(refused.is_set, "the refusal")
    await until(lambda: place.crew.ready, "another spawner")
    await place.begun("exit 0", linger=30)
    keeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeping


async def test_leaving_a_release_damages_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller who leaves while a record is removed leaves no run behind whose record is gone."""
    process = await place.begun("head -c 100000 /dev/zero", linger=30)
    removing, go_on, remove = threading.Event(), threading.Event(), shutil.rmtree

    def slowly(path: Path, *, ignore_errors: bool) -> None:
        removing.set()
        go_on.wait(30)
        remove(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", slowly)
    release = asyncio.create_task(place.runs.register.release(process))
    await until(removing.is_set, "the removal")
    release.cancel()
    with pytest.raises(asyncio.CancelledError):
        await release
    with pytest.raises(Unknown):
        await place.runs.register.view(process)
    go_on.set()
    assert place.runs.register.damage == {}


async def test_two_callers_seal_an_operation_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller who left while the promise was written, and one who asks again, do not spoil each other's."""
    store, operation = Store(tmp_path), OperationId(new_id("op"))
    store.open()
    writing, go_on, sync = threading.Event(), threading.Event(), os.fsync

    def slowly(descriptor: int) -> None:
        if not writing.is_set():
            writing.set()
            go_on.wait(30)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slowly)
    first = asyncio.create_task(asyncio.to_thread(store.entomb, operation))
    await until(writing.is_set, "the first promise")
    second = await asyncio.to_thread(store.entomb, operation)
    go_on.set()
    assert await first is None
    assert isinstance(second, Tombstone)
    assert store.load(operation) == second
    assert [path.name for path in store.runs.iterdir() if path.is_dir()] == [operation]
    store.close()


async def test_commands_that_stop_their_supervisors_are_ended(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a limit nor a cancellation waits for a supervisor that something holds up: the run is LOST."""
    monkeypatch.setattr("tyrum_local_spawn.runs._OVERDUE_SECONDS", 0.2)
    monkeypatch.setattr("tyrum_local_spawn.store._OWNER_SECONDS", 0.1)
    register, notes = place.runs.register, [place.provider.workspace / name for name in ("a", "b")]
    scripts = [
        f"echo $$ > {note}; sleep 0.1; kill -STOP $PPID; > {note}.done; exec sleep 60" for note in notes
    ]
    cancelled = await place.begun(scripts[0], linger=0)
    for wall in (0.4, 3, 20):  # a busy machine may end a command before it has stopped its supervisor
        limited = await place.begun(scripts[1], linger=0, wall=wall)
        view = await register.wait(limited, 30)
        if view.end is not None and view.end.cause is Cause.LOST:
            break
    assert view.end is not None
    assert view.end.cause is Cause.LOST
    await until(notes[0].with_suffix(".done").exists, "the command")
    await place.runs.cancel(cancelled, 0)
    view = await register.wait(cancelled, 30)
    assert view.end is not None
    assert view.end.cause is Cause.LOST
    leaders = [Path("/proc", note.read_text("ascii").strip()) for note in notes]
    await until(lambda: not any(leader.exists() for leader in leaders), "the commands' end")
    assert register.running == 0


def test_a_shutdown_is_orderly_whatever_holds_up_its_supervisors() -> None:
    """All that it waits for fits into what the kit gives it beyond the grace: later it would have failed."""
    assert HARD_END_SECONDS + LEAVE_SECONDS < PROVIDER_MARGIN
