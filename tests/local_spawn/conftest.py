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
    # A reader that hangs up makes gRPC's write fail; that is the reader's doing.
    log = [line for line in started.log.read_text().splitlines() if "ExecuteBatchError" not in line]
    assert not [line for line in log if "Traceback" in line or "supervisor failed" in line]
