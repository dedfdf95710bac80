"""A real store in a fresh directory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tyrum_gateway.storage import SqliteStore


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Where the store's file is."""
    return tmp_path / "state" / "tyrum.db"


@pytest.fixture
async def store(database: Path) -> AsyncIterator[SqliteStore]:
    """An open store."""
    async with await SqliteStore.open(database) as opened:
        yield opened
