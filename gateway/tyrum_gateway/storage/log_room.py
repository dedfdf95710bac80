"""Room in the log, made before it is needed.

A log that grows changes its file's size with every commit, and syncing that costs twice what syncing the same
pages into a file that has them costs. Folded into the database the log keeps its size, so that only the
commits after a start would pay.
"""

import os
import sqlite3
from pathlib import Path
from typing import Final

from tyrum_gateway.storage.connection import WRITER, failure

_PAGE: Final = 4096
_FREE_SHARE: Final = 64
"""The room is at most this part of what is free on the disk."""


def make_room(connection: sqlite3.Connection, path: Path) -> None:
    """Grow the log to what is written between two folds; the database stays as it is.

    Where the disk has little left, or the room cannot be made, there is none: nothing depends on it.

    Args:
        connection: The writing one, in no transaction.
        path: Of the database.

    Raises:
        StateUnusable: What was begun cannot be taken back, so that the connection is of no use any more.
    """
    size = int(WRITER["wal_autocheckpoint"]) * _PAGE
    disk = os.statvfs(path.parent)
    if disk.f_bavail * disk.f_frsize < size * _FREE_SHARE:
        return
    refused: sqlite3.Error | None = None
    try:
        # Pages that find no place in memory are written ahead into the log; taken back, they are nothing.
        connection.execute("PRAGMA cache_size=16")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE room (bytes BLOB)")
        connection.execute("INSERT INTO room VALUES (zeroblob(?))", (size,))
    except sqlite3.Error as error:
        refused = error
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute(f"PRAGMA cache_size={WRITER['cache_size']}")
    except sqlite3.Error as error:
        raise failure(path, error) from refused or error
