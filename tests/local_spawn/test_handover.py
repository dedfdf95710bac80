"""Between provider and supervisor: an order executes once, and not when nobody waits for it any more."""

import array
import asyncio
import fcntl
import socket
import termios
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.local_spawn.driver import DEADLINE, new_id, until
from tyrum_local_spawn.crew import Crew
from tyrum_local_spawn.ids import OperationId
from tyrum_local_spawn.link import NotStarted, Started, SupervisorEnded, SupervisorLink
from tyrum_local_spawn.run import Run, StartRequest
from tyrum_local_spawn.runs import Runs
from tyrum_local_spawn.settings import read_settings
from tyrum_local_spawn.store import RunRecord, Store
from tyrum_local_spawn.supervision.order import FileOrder, Order
from tyrum_local_spawn.supervision.record import Cause, ExitRecord, Refusal, Tombstone
from tyrum_local_spawn.supervision.spawner import IDLE_SUPERVISORS


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[tuple[Store, Crew]]:
    """Yield a state directory with a spawner."""
    store = Store(tmp_path)
    await asyncio.to_thread(store.open)
    crew = Crew(store.runs)
    await crew.start()
    yield store, crew
    await crew.stop()
    if crew._process is not None:  # whoever stops the crew does not wait for long; a busy machine may need it
        async with asyncio.timeout(DEADLINE):
            await crew._process.wait()
    store.close()


def order(workspace: Path, script: str) -> Order:
    """Return an order to run a script."""
    status = workspace.stat()
    return Order(
        operation_id=new_id("op"),
        process_id=new_id("proc"),
        spec_digest="0" * 64,
        program=FileOrder("/bin/sh", ""),
        argv=("sh", "-c", script),
        env={},
        workspace=str(workspace),
        device=status.st_dev,
        inode=status.st_ino,
        cwd="",
        stdin=b"",
        operands=(),
        wall_time=60,
        output_bytes=1000,
        kill_grace=0,
        spool_bytes=1 << 20,
        run_as=None,
    )


async def test_an_order_whose_provider_is_gone_does_not_execute(
    shop: tuple[Store, Crew], tmp_path: Path
) -> None:
    """A supervisor that takes an order after its provider hung up records that the command never executed."""
    store, crew = shop
    late = order(tmp_path, "touch ran")
    ours, theirs = socket.socketpair()
    link = SupervisorLink(ours, print)
    link.give(late)
    link.close()
    assert crew._control is not None
    socket.send_fds(crew._control, [b"R"], [theirs.fileno()])
    theirs.close()
    directory = store.runs / late.operation_id
    await until((directory / "exit").exists, "the record")
    found = store.load(OperationId(late.operation_id))
    assert isinstance(found, RunRecord)
    assert found.exit is not None
    assert (found.exit.cause, found.exit.refusal) == (Cause.START_FAILED, Refusal.INTERNAL)
    assert not (tmp_path / "ran").exists()


async def test_a_promise_beats_a_late_order(shop: tuple[Store, Crew], tmp_path: Path) -> None:
    """Once it is recorded that an operation never started, a supervisor cannot begin it."""
    store, crew = shop
    late = order(tmp_path, "touch ran")
    assert store.entomb(OperationId(late.operation_id)) is not None
    link = crew.summon(late, print)
    assert link is not None
    outcome = await link.outcome()
    link.close()
    assert isinstance(outcome, NotStarted)
    assert outcome.refusal is Refusal.REQUEST_ID_REUSED
    assert not (tmp_path / "ran").exists()
    assert isinstance(store.load(OperationId(late.operation_id)), Tombstone)


async def test_a_record_beats_a_late_promise(shop: tuple[Store, Crew], tmp_path: Path) -> None:
    """An operation that has begun cannot be recorded as never started."""
    store, crew = shop
    begun = order(tmp_path, "exit 0")
    ends: list[ExitRecord] = []
    link = crew.summon(begun, ends.append)
    assert link is not None
    assert isinstance(await link.outcome(), Started)
    assert store.entomb(OperationId(begun.operation_id)) is None
    await link.over()
    assert [end.exit_code for end in ends] == [0]


@pytest.fixture
async def runs(shop: tuple[Store, Crew]) -> AsyncIterator[Runs]:
    """Yield what begins runs in that state directory."""
    store, crew = shop
    runs = Runs(store, crew, read_settings({"run_as": "gateway_user"}))
    await runs.load()
    yield runs
    await runs.shutdown(0)


async def test_an_order_in_the_hands_of_killed_supervisors_goes_to_another(
    shop: tuple[Store, Crew], runs: Runs, tmp_path: Path
) -> None:
    """Supervisors killed with an order in hand, before they recorded it, cost the caller nothing."""
    run = begun_and_interrupted(shop, runs, tmp_path)
    async with asyncio.timeout(30):
        await runs.begun(run, linger=30)
    assert run.end is not None
    assert (run.end.cause, run.end.exit_code) == (Cause.EXITED, 0)
    assert (tmp_path / "ran").read_text() == "once\n"


async def test_an_order_with_a_record_goes_to_no_other_supervisor(
    shop: tuple[Store, Crew], runs: Runs, tmp_path: Path
) -> None:
    """What stands under the operation's name when its supervisor ends is judged, never begun again."""
    run = begun_and_interrupted(shop, runs, tmp_path, recorded=True)
    async with asyncio.timeout(30):
        await run.settled.wait()
    assert run.damage is not None
    assert not (tmp_path / "ran").exists()


async def test_an_end_with_the_order_unread_is_an_end(tmp_path: Path) -> None:
    """The kernel reports a reset instead of an end of file when the order was not read; both are the end."""
    ours, theirs = socket.socketpair()
    link = SupervisorLink(ours, print)
    link.give(order(tmp_path, "exit 0"))
    theirs.close()
    with pytest.raises(SupervisorEnded):
        await link.outcome()


async def test_a_run_that_is_starting_can_be_cancelled(runs: Runs, tmp_path: Path) -> None:
    """Who names a process whose start was not answered yet is not told that there is none."""
    run = runs.begin(StartRequest(order(tmp_path, "exec sleep 60"), required_claims=(), durable=False))
    assert not run.begun.is_set()
    await runs.cancel(run.process_id, 0)
    async with asyncio.timeout(30):
        await run.settled.wait()
    assert run.end is not None
    assert run.end.cause is Cause.CANCELLED


def begun_and_interrupted(
    shop: tuple[Store, Crew], runs: Runs, workspace: Path, *, recorded: bool = False
) -> Run:
    """Begin a run and kill its supervisor before it has the whole order, whose rest needs the event loop."""
    store, crew = shop
    assert crew._process is not None
    spawner = psutil.Process(crew._process.pid)
    _wait_for(lambda: len(spawner.children()) == IDLE_SUPERVISORS)
    whole = replace(order(workspace, "cat > /dev/null; echo once >> ran"), stdin=bytes(4 << 20))
    run = runs.begin(StartRequest(whole, required_claims=(), durable=False))
    assert run.link is not None
    channel = run.link._channel
    _wait_for(lambda: _unread(channel) == 0)
    if recorded:
        (store.runs / run.operation_id).mkdir()
    for supervisor in spawner.children():
        supervisor.kill()
    return run


def _unread(channel: socket.socket) -> int:
    """Return the size of what was sent and not yet received."""
    size = array.array("i", [0])
    fcntl.ioctl(channel, termios.TIOCOUTQ, size)
    return size[0]


def _wait_for(holds: Callable[[], bool]) -> None:
    """Poll until a condition holds, without letting the event loop run."""
    give_up = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.005)
