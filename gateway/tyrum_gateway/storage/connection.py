"""How connections to the database are set up, and the proof that they are.

Invariant: every connection has the settings below or is not used at all. Exactly one connection per file
writes and checkpoints; SQLite before 3.51.3 can lose a log that two connections write.
"""

import os
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tyrum_gateway.domain.errors import Damaged, DiskFull, StateUnusable

BUSY_MILLISECONDS = 5_000
"""How long a connection waits for a lock that another process holds."""

OLDEST_SQLITE = (3, 37, 0)
"""The first SQLite with strict tables."""

_LOG_INDEX: Final = 32 * 1024
"""Bytes of the smallest index that a log has."""

_COMMON: Mapping[str, str | int] = {
    "journal_mode": "wal",
    "synchronous": 2,
    "foreign_keys": 1,
    "busy_timeout": BUSY_MILLISECONDS,
    "trusted_schema": 0,
}
WRITER: Mapping[str, str | int] = {
    **_COMMON,
    "wal_autocheckpoint": 2_000,
    "cache_size": -4_000,
    "temp_store": 2,
    "query_only": 0,
}
"""Settings of the one writing connection: an acknowledged commit is on the disk. A page that many commits
change is folded into the file once for the 8 MB of log that they fill, and stays in 4 MB of memory."""
READER: Mapping[str, str | int] = {**_COMMON, "wal_autocheckpoint": 0, "query_only": 1}
"""Settings of the connections that read."""


def configure(
    execute: Callable[[str], tuple[object, ...] | None], settings: Mapping[str, str | int], path: Path
) -> None:
    """Apply settings and read each of them back.

    Args:
        execute: Runs a statement and returns its first row.
        settings: Pragmas and their values.
        path: The file, named in errors.

    Raises:
        StateUnusable: A setting did not take, or the SQLite library is too old.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StateUnusable(f"SQLite {needed} or newer is needed; this Python has {sqlite3.sqlite_version}")
    for name, wanted in settings.items():
        execute(f"PRAGMA {name}={wanted}")
        row = execute(f"PRAGMA {name}")
        found = None if row is None else row[0]
        if found != wanted:
            raise StateUnusable(
                f"the database {path} does not take {name}={wanted} (it has {found}): "
                "is its file system local and writable?",
                file=str(path),
            )


def open_writer(path: Path) -> sqlite3.Connection:
    """Open the writing connection; it may be handed to another thread, but never used by two.

    Raises:
        StateUnusable: The file cannot be opened, is not a database, or does not take the settings.
    """
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(
            path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            timeout=BUSY_MILLISECONDS / 1_000,
        )
        # Before any pragma changes the file: what is not a database stays as it is.
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        configure(_first_row(connection), WRITER, path)
        connection.row_factory = sqlite3.Row
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        raise failure(path, error) from error
    except StateUnusable:
        if connection is not None:
            connection.close()
        raise
    return connection


def failure(path: Path, error: sqlite3.Error) -> StateUnusable:
    """Say what an error of SQLite means to the operator."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return Damaged(
            f"the database {path} is damaged ({error}) and was left as it is: restore a backup, "
            "or move the file away to begin anew",
            file=str(path),
        )
    # Where the index of the log finds no room, SQLite speaks of an I/O error.
    unwritten = code is not None and code & 0xFF in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
    if (code is not None and code & 0xFF == sqlite3.SQLITE_FULL) or (unwritten and _full(path)):
        return DiskFull(f"the disk of the database {path} is full: make room", file=str(path))
    return StateUnusable(f"the database {path} cannot be used: {error}", file=str(path))


def _full(path: Path) -> bool:
    """Tell whether the disk of a file has less room than the index of the log takes."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LOG_INDEX


def _first_row(connection: sqlite3.Connection) -> Callable[[str], tuple[object, ...] | None]:
    def run(sql: str) -> tuple[object, ...] | None:
        row: tuple[object, ...] | None = connection.execute(sql).fetchone()
        return row

    return run
