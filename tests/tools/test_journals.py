"""Whether a command ran is proved by the journal that it was bound under, and by no other."""

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.host.support import environment_of
from tests.tools.places import Bench, bench
from tests.tools.providers import running, spawner
from tests.tools.test_execution import execution
from tyrum_gateway.domain.states import CallState
from tyrum_gateway.domain.tool import Execution
from tyrum_provider_host.host import ProviderHost
from tyrum_provider_host.status import Lifecycle

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def ran(place: Bench, text: str) -> Execution:
    """Run a command to its end, keep its record, and return its committed names."""
    prepared = await place.shell(text)
    names = execution(prepared.candidate)
    assert (await place.tool.execute(prepared, names)).state is CallState.SUCCEEDED
    return names


async def replaced(host: ProviderHost) -> None:
    """Kill the provider, and wait for the next instance."""
    before = host.status("chosen")
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)

    def back(host: ProviderHost) -> bool:
        now = host.status("chosen")
        return now.generation > before.generation and now.lifecycle is Lifecycle.ADMITTED

    assert await host.wait_until(back, 60)


async def test_a_lost_journal_proves_nothing(tmp_path: Path) -> None:
    """A command that had run was reported as not run once its journal was removed, or restored without it."""
    async with running(spawner()) as host:
        place = bench(host, tmp_path)
        pid = host.status("chosen").pid
        assert pid is not None
        state = Path(environment_of(pid)["TYRUM_PROVIDER_STATE_DIR"])
        shutil.copytree(state, tmp_path / "backup")
        names = await ran(place, "echo x >> log")
        for lost in ("removed", "restored"):
            state.rename(state.with_name(lost))  # noqa: ASYNC240 - at once: the provider still lives
            if lost == "restored":
                shutil.copytree(tmp_path / "backup", state)
            await replaced(host)
            settled = await place.tool.settle(names)
            assert settled.state is CallState.OUTCOME_UNKNOWN, lost
            assert "removed, replaced or restored" in settled.content
            names = await ran(place, "echo x >> log")
        await replaced(host)
        assert (await place.tool.settle(names)).state is CallState.SUCCEEDED, "the journal is the same again"


async def test_a_binding_without_a_journal_is_proved_nothing_of(
    spawning: ProviderHost, tmp_path: Path
) -> None:
    """What was bound before journals had an identity is unknown where no record is."""
    prepared = await bench(spawning, tmp_path).shell("true")
    assert prepared.candidate is not None
    assert prepared.candidate.journal_id
    old = execution(replace(prepared.candidate, journal_id=""))
    new = execution(prepared.candidate)
    tool = bench(spawning, tmp_path / "successor").tool
    assert (await tool.settle(old)).state is CallState.OUTCOME_UNKNOWN
    assert (await tool.settle(new)).state is CallState.FAILED
