"""One provider per module, shared by the tests that do not harm it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.local_spawn.driver import Provider


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Provider]:
    """Yield a configured provider and check at the end that it leaves nothing behind."""
    async with Provider.started(tmp_path_factory.mktemp("p")) as started:
        yield started
    assert started.process.returncode == 0, started.log.read_text()
    assert "Traceback" not in started.log.read_text()
    assert "supervisor failed" not in started.log.read_text()
