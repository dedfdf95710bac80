"""What `tyrum doctor` finds out about the database and its disk.

Invariant: both are only read; a look that takes too long is reported as one that was not finished.
"""

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from tyrum_gateway.cli.finding import Finding, Result

CHECK_SECONDS = 20.0
"""How long the database is looked at."""

LEAST_BYTES = 64 * 1024 * 1024
"""Free bytes below which a disk is as good as full: some logs of the database and output of commands."""

LITTLE_BYTES = 1024 * 1024 * 1024
"""Free bytes below which an operator should know."""

_INSTRUCTIONS = 10_000


def database(directory: Path) -> Finding:
    """Check every page of the database, and that its indexes hold what its tables hold."""
    path = directory / "tyrum.sqlite3"
    if not path.exists():
        return Finding("database", Result.OK, "will be made by the first `tyrum serve`")
    give_up = time.monotonic() + CHECK_SECONDS
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)
        ) as reading:
            reading.set_progress_handler(lambda: time.monotonic() > give_up, _INSTRUCTIONS)
            found = [str(row[0]) for row in reading.execute("PRAGMA integrity_check(3)")]
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            unfinished = f"`{path}` was read for {CHECK_SECONDS:g} s and not to its end"
            return Finding("database", Result.WARN, unfinished, "check it with nothing else running")
        return _damaged(path, str(error))
    if found != ["ok"]:
        return _damaged(path, "; ".join(found))
    return Finding("database", Result.OK, f"`{path}`: all pages can be read")


def disk(directory: Path) -> Finding:
    """Check that the disk of the state directory has room."""
    there = next(place for place in (directory, *directory.parents) if place.exists())
    try:
        status = os.statvfs(there)
    except OSError as error:
        return Finding("disk", Result.FAIL, f"`{there}`: {error.strerror}", "choose another: --state-dir DIR")
    free = status.f_bavail * status.f_frsize
    text = f"{free / 1024 / 1024:,.0f} MiB are free for `{directory}`"
    if free < LEAST_BYTES:
        return Finding("disk", Result.FAIL, text, "make room: without it no message is taken")
    if free < LITTLE_BYTES:
        return Finding("disk", Result.WARN, text, "make room before it is full")
    return Finding("disk", Result.OK, text)


def _damaged(path: Path, problem: str) -> Finding:
    fix = "stop the gateway, keep a copy of the file, restore a backup"
    return Finding("database", Result.FAIL, f"`{path}` is damaged: {problem}", fix)
