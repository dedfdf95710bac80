"""The schema's version: created, migrated after a backup, or refused when it is newer.

Invariant: a database is migrated whole or not at all, an existing one only after a copy of it was made, and
nothing is ever reset.
"""

import contextlib
import os
import shlex
import sqlite3
import stat
from datetime import UTC, datetime
from pathlib import Path

from tyrum_gateway.domain.errors import DiskFull, StateUnusable
from tyrum_gateway.storage.connection import failure, open_writer
from tyrum_gateway.storage.new_file import NO_ROOM, make_directory, sync_directory

VERSION = 5
"""Version of the tables in `tables`; the newest migration has this number."""


def prepare(path: Path) -> None:
    """Make sure that the file holds the tables of `VERSION`.

    Raises:
        StateUnusable: The file is damaged, is another program's, or was written by a newer gateway.
    """
    _create(path)
    _require_writable(path)
    connection = open_writer(path)
    try:
        found = _version(connection, path)
        if found > VERSION:
            raise StateUnusable(
                f"the database {path} has schema version {found}, this gateway knows {VERSION}: "
                "use the newer gateway, or restore the backup made before its migration",
                file=str(path),
            )
        if found == VERSION:
            return
        if not _empty(connection):
            back_up(connection, path, found)
    except sqlite3.Error as error:
        raise failure(path, error) from error
    finally:
        connection.close()
    # Alembic takes a second to import: only a migration pays for it.
    from tyrum_gateway.storage.migrations.upgrade import upgrade  # noqa: PLC0415

    upgrade(path)


def back_up(connection: sqlite3.Connection, path: Path, version: int) -> Path:
    """Copy the database beside itself, readable by its owner only, and return the copy's path."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    copy = path.with_name(f"{path.name}.backup-{version}-{stamp}")
    try:
        _copy(connection, copy)
    except OSError as error:
        copy.unlink(missing_ok=True)
        raise _not_written(path, "backed up before its migration", error) from error
    except BaseException:
        copy.unlink(missing_ok=True)
        raise
    return copy


def _copy(connection: sqlite3.Connection, copy: Path) -> None:
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with contextlib.closing(sqlite3.connect(copy)) as target:
        connection.backup(target)
    descriptor = os.open(copy, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(copy.parent)


def _not_written(path: Path, what: str, error: OSError) -> StateUnusable:
    if error.errno in NO_ROOM:
        return DiskFull(f"the disk of the database {path} is full: make room", file=str(path))
    return StateUnusable(f"the database {path} cannot be {what}: {error}", file=str(path))


def _create(path: Path) -> None:
    try:
        missing = [parent for parent in (path.parent, *path.parent.parents) if not parent.exists()]
        for parent in reversed(missing):
            make_directory(parent, 0o700)
        if not path.exists():
            # The log and its index take over the permissions of the database.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            sync_directory(path.parent)
    except OSError as error:
        raise _not_written(path, "created", error) from error


def _require_writable(path: Path) -> None:
    """Refuse before SQLite looks: it would leave a log and an index behind with the database's rights."""
    for file in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
        if file.exists() and not os.access(file, os.R_OK | os.W_OK, effective_ids=True):
            mode = stat.S_IMODE(file.stat().st_mode)
            fix = "is its disk read-only?" if mode & 0o600 == 0o600 else f"chmod 600 {shlex.quote(str(file))}"
            raise StateUnusable(
                f"you may not write `{file}` of the database ({mode:o}): {fix}", file=str(file)
            )


def _empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None


def _version(connection: sqlite3.Connection, path: Path) -> int:
    if _empty(connection):
        return 0
    table = connection.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'alembic_version'"
    ).fetchone()
    if table is None:
        raise StateUnusable(
            f"{path} is a database of another program: configure another file", file=str(path)
        )
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    if row is None:
        return 0
    text = str(row[0])
    if not text.isdecimal():
        raise StateUnusable(
            f"the database {path} has the unknown schema version `{text[:60]}`, this gateway knows {VERSION}",
            file=str(path),
        )
    return int(text)
