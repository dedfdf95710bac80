"""A provider that was admitted and lies: nothing it says against the contract is believed."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.tools.places import bench
from tests.tools.providers import running
from tests.tools.test_execution import execution
from tyrum_conformance.broken._lies import LIES, STREAMS
from tyrum_gateway.domain.states import CallState
from tyrum_provider_host import OperationContext, OutputStream, ProviderBug, ProviderSpec, StateValue
from tyrum_provider_host.host import ProviderHost

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lying() -> AsyncIterator[ProviderHost]:
    """Run the liar, named `chosen`."""
    command = (sys.executable, "-m", "tyrum_conformance.broken", "lies")
    liars = ProviderSpec(name="chosen", kind="isolation", command=command, start_timeout=60.0)
    async with running(liars) as host:
        yield host


@pytest.mark.parametrize(
    "lie",
    sorted(LIES.keys() - {"nothing"}),
)
async def test_what_breaks_the_contract_is_no_outcome(lying: ProviderHost, tmp_path: Path, lie: str) -> None:
    """A result that cannot be true leaves the outcome unknown, and none of it is kept."""
    place = bench(lying, tmp_path)
    prepared = await place.prepare(argv=["true", lie])
    result = await place.tool.execute(prepared, execution(prepared.candidate))
    assert (result.state, result.process) == (CallState.OUTCOME_UNKNOWN, None)


@pytest.mark.parametrize("lie", sorted(STREAMS))
async def test_output_that_breaks_the_contract_is_refused(
    lying: ProviderHost, tmp_path: Path, lie: str
) -> None:
    """Output after its end, or with a gap, is an error and marks the instance; honest output is not."""
    place = bench(lying, tmp_path)
    prepared = await place.prepare(argv=["true", lie])
    names = execution(prepared.candidate)
    await place.tool.execute(prepared, names)
    assert names.process_id is not None
    context = OperationContext("bind_" + "0" * 26, "dev.tyrum.conformance.good", "default", 1, "prin_x")
    chunks = lying.isolation("chosen").read_output(context, names.process_id, OutputStream.STDOUT)
    if lie == "nothing":
        assert b"".join([chunk.data async for chunk in chunks]) == b"ten bytes."
        return
    with pytest.raises(ProviderBug, match="ReadOutput"):
        async for _ in chunks:
            pass
    degraded = lying.status("chosen").states[5]
    assert degraded.value is StateValue.TRUE
    assert "against its contract" in degraded.reason


async def test_what_is_possible_is_believed(lying: ProviderHost, tmp_path: Path) -> None:
    """The same provider without a lie succeeds: the checks above fail for the lies alone."""
    place = bench(lying, tmp_path)
    prepared = await place.prepare(argv=["true", "nothing"])
    result = await place.tool.execute(prepared, execution(prepared.candidate))
    assert result.state is CallState.SUCCEEDED
