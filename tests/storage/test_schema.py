"""Opening: created privately, set up and proved, migrated after a backup, refused when unfit."""

import asyncio
import os
import re
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tests.storage.builders import message
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.storage import SqliteStore, statements
from tyrum_gateway.storage.connection import READER, WRITER, configure
from tyrum_gateway.storage.schema import VERSION
from tyrum_gateway.storage.statements import Statement
from tyrum_gateway.storage.tables import metadata
from tyrum_gateway.storage.transaction import Transaction


def _read(file: Path) -> bytes:
    return file.read_bytes()


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)


def _schema(rows: list[tuple[str, str]]) -> dict[str, str]:
    return {name: re.sub(r"\s+", "", sql) for name, sql in rows if name != "alembic_version"}


_OBJECTS = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"


async def test_migrations_make_the_tables(store: SqliteStore, database: Path) -> None:
    """A migrated database and the tables that the statements are built from are the same."""
    del store
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        metadata.create_all(connection)
        expected = _schema([(row[0], row[1]) for row in connection.execute(text(_OBJECTS))])
    engine.dispose()
    migrated = sqlite3.connect(database)
    found = _schema(migrated.execute(_OBJECTS).fetchall())
    assert migrated.execute("SELECT version_num FROM alembic_version").fetchall() == [(str(VERSION),)]
    migrated.close()
    assert found == expected


async def test_files_are_private(store: SqliteStore, database: Path) -> None:
    """Database, log and index are the owner's alone, and so is the directory made for them."""
    await store.accept(message())
    files = sorted(database.parent.iterdir())
    assert [file.name for file in files] == ["tyrum.db", "tyrum.db-shm", "tyrum.db-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write every file")
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
async def test_a_refused_open_leaves_files_as_they_were(database: Path, suffix: str) -> None:
    """A file that may not be written is named with its fix before SQLite looks; that fix is enough."""
    async with await SqliteStore.open(database):
        pass
    locked = database.with_name(database.name + suffix)
    locked.touch()
    locked.chmod(0o400)
    before = {file.name: file.stat() for file in database.parent.iterdir()}
    with pytest.raises(StateUnusable, match=rf"`{locked}` of the database \(400\): chmod 600 {locked}"):
        await SqliteStore.open(database)
    assert {file.name: file.stat() for file in database.parent.iterdir()} == before
    locked.chmod(0o600)
    async with await SqliteStore.open(database):
        pass


async def test_connections_have_their_settings(store: SqliteStore) -> None:
    """The writer is durable and checks keys; readers cannot write."""

    def settings(transaction: Transaction) -> dict[str, object]:
        execute = transaction.connection.execute
        return {name: execute(f"PRAGMA {name}").fetchone()[0] for name in WRITER}

    assert await store._writer.run(settings) == dict(WRITER)
    assert (WRITER["journal_mode"], WRITER["synchronous"], WRITER["foreign_keys"]) == ("wal", 2, 1)
    queries = [(Statement(f"PRAGMA {name}", {}), dict[str, object]()) for name in READER]
    found = await store._reads.fetch(*queries)
    assert {name: rows[0][0] for name, rows in zip(READER, found, strict=True)} == dict(READER)
    with pytest.raises(StateUnusable, match="readonly"):
        await store._reads.fetch((Statement("DELETE FROM checkpoints", {}), {}))


def test_a_setting_that_does_not_take_is_refused(tmp_path: Path) -> None:
    """A connection without write-ahead logging is not used: here because the database is in memory."""
    connection = sqlite3.connect(":memory:")

    def first_row(sql: str) -> tuple[object, ...] | None:
        row: tuple[object, ...] | None = connection.execute(sql).fetchone()
        return row

    with pytest.raises(StateUnusable, match="journal_mode=wal"):
        configure(first_row, WRITER, tmp_path)
    connection.close()


async def test_a_newer_schema_is_refused(database: Path) -> None:
    """A database of a newer gateway is refused with both versions, and left as it was."""
    async with await SqliteStore.open(database):
        pass
    connection = sqlite3.connect(database)
    connection.execute("UPDATE alembic_version SET version_num = '7'")
    connection.commit()
    connection.close()
    before = _read(database)
    with pytest.raises(StateUnusable, match=rf"version 7, this gateway knows {VERSION}"):
        await SqliteStore.open(database)
    assert _read(database) == before


@pytest.mark.parametrize("damage", ["garbage", "header", "page"])
async def test_a_damaged_file_is_refused(database: Path, damage: str) -> None:
    """A file that is no database is refused by name, never reset."""
    if damage == "garbage":
        content = b"not a database at all" * 500
    else:
        async with await SqliteStore.open(database):
            pass
        content = _read(database)
        content = b"x" * 100 + content[100:] if damage == "header" else content[:100] + b"x" * 3_996
    _write(database, content)
    with pytest.raises(StateUnusable, match=re.escape(str(database))):
        await SqliteStore.open(database)
    assert _read(database) == content


async def test_another_programs_database_is_refused(database: Path) -> None:
    """Tables of another program are not migrated into ours."""
    database.parent.mkdir()
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    with pytest.raises(StateUnusable, match="another program"):
        await SqliteStore.open(database)


async def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A path below a file is refused with the path."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StateUnusable, match=r"file/tyrum\.db"):
        await SqliteStore.open(tmp_path / "file" / "tyrum.db")


def _older(database: Path, *statements: str) -> None:
    database.parent.mkdir(mode=0o700)
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    connection.execute("CREATE TABLE keepsake (word TEXT)")
    connection.execute("INSERT INTO keepsake VALUES ('kept')")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def _backups(database: Path) -> list[Path]:
    return sorted(database.parent.glob(f"{database.name}.backup-*"))


async def test_a_backup_is_made_before_a_migration(database: Path) -> None:
    """An existing database is copied, privately and whole, before it is migrated; a current one is not."""
    _older(database)
    for _ in range(2):
        async with await SqliteStore.open(database) as store:
            await store.accept(message())
    (backup,) = _backups(database)
    assert backup.name.startswith("tyrum.db.backup-0-")
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    connection = sqlite3.connect(backup)
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    assert names == {"alembic_version", "keepsake"}
    assert connection.execute("SELECT word FROM keepsake").fetchall() == [("kept",)]
    connection.close()


async def test_a_failed_migration_changes_nothing(database: Path) -> None:
    """A migration that fails at its last table leaves no table behind."""
    _older(database, "CREATE TABLE tokens (other TEXT)")
    with pytest.raises(StateUnusable, match="could not be migrated"):
        await SqliteStore.open(database)
    connection = sqlite3.connect(database)
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    connection.close()
    assert names == {"alembic_version", "keepsake", "tokens"}
    assert len(_backups(database)) == 1


async def test_opening_a_current_database_is_cheap(database: Path) -> None:
    """The migration library, slow to import, is loaded only to migrate."""
    async with await SqliteStore.open(database):
        pass
    script = (
        "import asyncio, pathlib, sys; from tyrum_gateway.storage import SqliteStore\n"
        "async def main():\n"
        "    await (await SqliteStore.open(pathlib.Path(sys.argv[1]))).close()\n"
        "asyncio.run(main()); sys.exit('alembic' in sys.modules)"
    )
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script, str(database)], check=False, timeout=60
    )
    assert done.returncode == 0


def test_statements_carry_no_values() -> None:
    """Every value reaches SQLite as a parameter: no statement has a quoted text but the one state name."""
    for name, statement in vars(statements).items():
        if isinstance(statement, Statement):
            assert re.findall(r"'([^']*)'", statement.sql) in ([], ["waiting_approval"]), name
