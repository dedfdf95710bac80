"""The identity of a journal: what tells a journal that recorded nothing from one that was lost.

Invariant: as long as the identity is the same, nothing that was recorded beside it was lost by removing,
replacing or copying the directory.
"""

import os
import secrets
from pathlib import Path
from typing import Final

IDENTITY_FILE: Final = "journal.id"
ORIGIN_FILE: Final = "journal.origin"


def journal_identity(directory: Path) -> str:
    """Return the identity of the journal in `directory`, drawn anew when there is none.

    A second file names inode and change time of the first, which no copy has: a backup that was restored
    lacks what was recorded since, and is another journal. Durable on return. To be called before anything
    else is recorded there.

    Raises:
        OSError: the directory takes no file.
    """
    path, origin = directory / IDENTITY_FILE, directory / ORIGIN_FILE
    try:
        if origin.read_text(encoding="ascii") == _origin(path):
            return path.read_text(encoding="ascii")
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    origin.unlink(missing_ok=True)
    identity = f"jrnl_{secrets.token_urlsafe(18)}"
    _write(path, identity)
    _write(origin, _origin(path))
    descriptor = os.open(directory, os.O_DIRECTORY | os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return identity


def _origin(path: Path) -> str:
    """Say what tells a file from its copies."""
    status = path.stat()
    return f"{status.st_ino} {status.st_ctime_ns}"


def _write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with path.open("x", encoding="ascii") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
