"""A provider that was admitted and lies: nothing it says against the contract is believed."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.tools import liar
from tests.tools.places import bench
from tests.tools.providers import running
from tests.tools.test_execution import execution
from tyrum_gateway.domain.states import CallState
from tyrum_provider_host import ProviderSpec
from tyrum_provider_host.host import ProviderHost

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lying() -> AsyncIterator[ProviderHost]:
    """Run the liar, named `chosen`."""
    command = (sys.executable, liar.__file__)
    liars = ProviderSpec(name="chosen", kind="isolation", command=command, start_timeout=60.0)
    async with running(liars) as host:
        yield host


@pytest.mark.parametrize(
    "lie",
    [
        "astronomic total",
        "total below what is shown",
        "no digest",
        "negative duration",
        "another operation",
        "denied later",
        "denied at once",
    ],
)
async def test_what_breaks_the_contract_is_no_outcome(lying: ProviderHost, tmp_path: Path, lie: str) -> None:
    """A result that cannot be true leaves the outcome unknown, and none of it is kept."""
    place = bench(lying, tmp_path)
    prepared = await place.prepare(argv=["true", lie])
    result = await place.tool.execute(prepared, execution(prepared.candidate))
    assert (result.state, result.process) == (CallState.OUTCOME_UNKNOWN, None)


async def test_what_is_possible_is_believed(lying: ProviderHost, tmp_path: Path) -> None:
    """The same provider without a lie succeeds: the checks above fail for the lies alone."""
    place = bench(lying, tmp_path)
    prepared = await place.prepare(argv=["true", "nothing"])
    result = await place.tool.execute(prepared, execution(prepared.candidate))
    assert result.state is CallState.SUCCEEDED
