"""New files and directories that are there whole, also after a power loss, or not at all.

Invariant: a name stands for its whole content from the moment it exists; when these return, name and content
are on the disk.
"""

import contextlib
import errno
import os
from pathlib import Path
from typing import Final

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system says when a disk, or a user's share of it, is full."""


def create(path: Path, content: bytes, mode: int) -> None:
    """Write a file, replacing what has its name.

    Raises:
        OSError: It cannot be written; what had the name is as it was.
    """
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def make_directory(path: Path, mode: int) -> None:
    """Make a directory whose parent exists; one that is there already is left as it is.

    Raises:
        OSError: It cannot be made.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode)
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Put the names in a directory on the disk.

    Raises:
        OSError: That failed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
