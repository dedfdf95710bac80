"""`tyrum doctor` looks at the database and at the room on its disk."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.storage.builders import message
from tests.support.small_disk import mounted
from tyrum_gateway.cli.doctor_storage import database, disk
from tyrum_gateway.cli.finding import Result
from tyrum_gateway.storage import SqliteStore


async def test_a_damaged_page_of_the_database_is_found(tmp_path: Path) -> None:
    """Whole it is ok, also while a gateway has it open; with a page of nonsense it is not."""
    assert database(tmp_path).result is Result.OK
    path = tmp_path / "tyrum.sqlite3"
    async with await SqliteStore.open(path) as store:
        for _ in range(20):
            await store.accept(message())
        assert database(tmp_path).result is Result.OK
    with closing(sqlite3.connect(path)) as reading:
        ((page,),) = reading.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'events'")
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\x5a" * 4096)
    found = database(tmp_path)
    assert (found.result, str(path) in found.detail) == (Result.FAIL, True)
    assert "backup" in found.fix


def test_a_disk_without_room_is_found(tmp_path: Path) -> None:
    """A disk of 4 MiB, where one can be mounted, is as good as full, also for a directory yet to be made."""
    with mounted(tmp_path / "disk", 4) as small:
        found = disk(small.path / "state" / "of" / "a" / "gateway")
        assert not small.mounted or found.result is Result.FAIL
        assert "MiB are free" in found.detail
