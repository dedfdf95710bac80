"""One admitted provider for all tool tests of a module: starting it is the slow part."""

import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.tools.places import Bench, bench
from tyrum_provider_host import ProviderSpec
from tyrum_provider_host.host import ProviderHost


def spec(name: str) -> ProviderSpec:
    """Specify the smallest conforming provider."""
    command = (sys.executable, "-m", "tyrum_conformance.broken", "good")
    return ProviderSpec(name=name, kind="isolation", command=command, start_timeout=30.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[ProviderHost]:
    """Run two providers, of which tools select `chosen`; the other must never be bound."""
    base = Path(tempfile.mkdtemp(prefix="tyt-"))
    try:
        host = ProviderHost(
            [spec("chosen"), spec("other")], state_dir=base / "state", runtime_dir=base / "run"
        )
        async with host:
            assert await host.wait_settled(40)
            yield host
    finally:
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def place(host: ProviderHost, tmp_path: Path) -> Bench:
    """A tool over the chosen provider."""
    return bench(host, tmp_path)
