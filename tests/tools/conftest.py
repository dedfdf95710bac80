"""One admitted provider for all tool tests of a module: starting it is the slow part."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.tools.places import Bench, bench
from tests.tools.providers import running, spawner, spec
from tyrum_provider_host.host import ProviderHost


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[ProviderHost]:
    """Run two providers, of which tools select `chosen`; the other must never be bound."""
    async with running(spec("chosen"), spec("other")) as host:
        yield host


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def spawning() -> AsyncIterator[ProviderHost]:
    """Run the provider that really runs commands, named `chosen`."""
    async with running(spawner()) as host:
        yield host


@pytest.fixture
def place(host: ProviderHost, tmp_path: Path) -> Bench:
    """A tool over the chosen provider."""
    return bench(host, tmp_path)
