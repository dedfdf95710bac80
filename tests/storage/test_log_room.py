"""The log of a gateway that serves has its size before the first commit."""

import sqlite3
from pathlib import Path

import pytest

from tests.storage.builders import message
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.storage import SqliteStore, log_room, store
from tyrum_gateway.storage.connection import open_writer
from tyrum_gateway.storage.tables import metadata


def _log(database: Path) -> int:
    return database.with_name(f"{database.name}-wal").stat().st_size


async def _grown(database: Path) -> tuple[int, int]:
    """Write into a store that makes room; return the size of its log before and after."""
    async with await SqliteStore.open(database, log_room=True) as store:
        before = _log(database)
        for _ in range(20):
            await store.accept(message())
        return before, _log(database)


async def test_commits_do_not_grow_the_log(database: Path) -> None:
    """The room is what is written between two folds, and nothing of it is in the database."""
    before, after = await _grown(database)
    assert before == after >= 2_000 * 4096
    connection = sqlite3.connect(database)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.close()
    assert tables - {"alembic_version", "sqlite_sequence"} == set(metadata.tables)
    assert pages < 200


async def test_a_disk_with_little_left_is_spared(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is made only where it is a small part of what is free; otherwise the log grows as it is used."""
    monkeypatch.setattr(log_room, "_FREE_SHARE", 1 << 40)
    before, after = await _grown(database)
    assert before < after < 2_000 * 4096


async def test_room_that_cannot_be_taken_back_ends_the_start_and_says_so(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is stuck in a transaction is closed, and the operator reads which file it is of."""
    opened: list[sqlite3.Connection] = []

    def reluctant(path: Path) -> sqlite3.Connection:
        opened.append(open_writer(path))
        opened[0].set_authorizer(
            lambda _, what, *__: sqlite3.SQLITE_DENY if what == "ROLLBACK" else sqlite3.SQLITE_OK
        )
        return opened[0]

    monkeypatch.setattr(store, "open_writer", reluctant)
    with pytest.raises(StateUnusable, match=r"tyrum\.db cannot be used: not authorized"):
        await SqliteStore.open(database, log_room=True)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")
