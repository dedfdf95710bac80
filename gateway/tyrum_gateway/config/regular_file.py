"""Reads a regular file within a bound; a pipe, device or directory in its place never holds anything up."""

import os
import stat
from pathlib import Path


def read_regular_file(path: Path, *, limit: int) -> bytes:
    """Return the content; longer files are cut after `limit` + 1 bytes, by which the caller knows them.

    Raises:
        OSError: it cannot be opened or is not a regular file; `strerror` says why.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit + 1)
    finally:
        os.close(descriptor)
