"""Between provider and supervisor: an order that nobody waits for any more must not execute."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.local_spawn.driver import new_id, until
from tyrum_local_spawn.crew import Crew
from tyrum_local_spawn.ids import OperationId
from tyrum_local_spawn.link import NotStarted, Started, SupervisorLink
from tyrum_local_spawn.store import RunRecord, Store
from tyrum_local_spawn.supervision.order import FileOrder, Order
from tyrum_local_spawn.supervision.record import Cause, ExitRecord, Refusal, Tombstone


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[tuple[Store, Crew]]:
    """Yield a state directory with a spawner."""
    store = Store(tmp_path)
    await asyncio.to_thread(store.open)
    crew = Crew(store.runs)
    await crew.start()
    yield store, crew
    await crew.stop()
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
        wall_time=10,
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
