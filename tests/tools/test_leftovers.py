"""What a provider still has of settled calls is ended and released; what executes is left alone."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from tests.storage.builders import begin, call, end, running
from tests.tools.places import bench
from tests.tools.test_execution import exists
from tyrum_gateway.app.leftovers import Leftovers
from tyrum_gateway.domain.binding import Candidate
from tyrum_gateway.domain.ports import ExecutedCall
from tyrum_gateway.domain.process import Ran
from tyrum_gateway.domain.states import CallState
from tyrum_gateway.domain.turn import Turn
from tyrum_gateway.storage import SqliteStore
from tyrum_gateway.tools.hosted_isolation import HostedIsolation
from tyrum_gateway.tools.isolation import Running
from tyrum_provider_host.host import ProviderHost

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """An open store."""
    async with await SqliteStore.open(tmp_path / "state" / "tyrum.db") as opened:
        yield opened


async def begun(store: SqliteStore, candidate: Candidate | None) -> tuple[Turn, ExecutedCall]:
    """Commit a call that executes under a candidate."""
    assert candidate is not None
    turn = await running(store)
    commit = begin(turn, call(turn, CallState.PERMITTED))
    (binding,) = commit.bindings
    turn, *_ = await store.commit(replace(commit, bindings=(replace(binding, candidate=candidate),)))
    executed = await store.executed(binding.operation_id)
    assert executed is not None
    return turn, executed


async def test_a_command_whose_call_is_settled_does_not_run_on(
    spawning: ProviderHost, store: SqliteStore, tmp_path: Path
) -> None:
    """Two commands ran on when a stopped provider came back; records of settled calls stayed for a day."""
    place = bench(spawning, tmp_path)
    isolation = HostedIsolation(spawning, provider="chosen", profile="default")
    leftovers = Leftovers(store, (isolation,))
    prepared = await place.shell("touch began; exec sleep 60")
    assert prepared.run is not None
    turn, executed = await begun(store, prepared.candidate)
    assert executed.state is CallState.EXECUTING
    names = executed.execution
    assert isinstance(await isolation.start(names, prepared.run, {}), Running)
    await exists(place.workspace / "began")

    await leftovers.look(isolation)
    assert isinstance(await isolation.wait(names, 0.1), Running), "it executes, and is left alone"

    await store.commit(end(turn, "settled without knowing"))
    await leftovers.look(isolation)
    assert not [run for run in await isolation.recorded() if run.operation_id == names.operation_id]

    prepared = await place.shell("true")
    assert prepared.run is not None
    turn, executed = await begun(store, prepared.candidate)
    answer = await isolation.start(executed.execution, prepared.run, {})
    assert isinstance(answer, Ran)
    await store.commit(end(turn, "settled; the gateway was killed before it released the record"))
    await leftovers.look(isolation)
    left = {run.operation_id for run in await isolation.recorded()}
    assert executed.execution.operation_id not in left


async def test_it_looks_at_each_admission(spawning: ProviderHost) -> None:
    """A provider that is admitted is looked at once; the next time is its next admission."""
    isolation = HostedIsolation(spawning, provider="chosen", profile="default")
    seen = await isolation.admitted_again(0)
    assert seen == spawning.status("chosen").admissions == 1
