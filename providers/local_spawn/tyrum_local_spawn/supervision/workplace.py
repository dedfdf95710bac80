"""The directory of one run: prepared ahead of time, published with its journal in one rename.

`runs/<operation id>` appears only after its journal is durable, so whatever stands there without a readable
journal is damage and never an operation that did not begin. The rename decides at once and for every process
who began the operation; only a crash of the host can undo it, and then the journal itself, durable under the
idle name, tells the next start of the provider which operation the directory belongs to.
"""

import contextlib
import errno
import fcntl
import os
from typing import Final

from tyrum_local_spawn.supervision.record import (
    EXIT,
    EXIT_PENDING,
    JOURNAL,
    ExitRecord,
    Journal,
    encode_exit,
    encode_journal,
)

IDLE_PREFIX: Final = ".idle-"
"""Directories that no operation owns yet."""
RECORD_BYTES: Final = 4096
"""What journal and exit record have on disk before they are written: more is needed only for long output."""
_CREATE: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class AlreadyBegun(Exception):
    """A record of this operation exists."""


class Workplace:
    """A run's directory. The journal stays open and locked while the supervisor lives."""

    def __init__(self, runs_fd: int) -> None:
        self._runs_fd = runs_fd
        self._name = f"{IDLE_PREFIX}{os.getpid()}"
        os.mkdir(self._name, 0o700, dir_fd=runs_fd)
        self.fd = os.open(self._name, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=runs_fd)
        self._journal_fd = self._allocate(JOURNAL)
        fcntl.flock(self._journal_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._exit_fd = self._allocate(EXIT_PENDING)
        # No fsync of the directories: syncing a file that was just created makes its name durable too on
        # every file system Linux runs on, and more commits here would hold up the runs that begin meanwhile.

    def _allocate(self, name: str) -> int:
        """Create a file of zeros, durably: writing a record into it then syncs nothing but its bytes."""
        fd = os.open(name, _CREATE, 0o600, dir_fd=self.fd)
        os.write(fd, bytes(RECORD_BYTES))
        os.fsync(fd)
        return fd

    def write_journal(self, journal: Journal) -> None:
        """Make the journal durable under the idle name; on this boot the operation has not begun yet."""
        _write(self._journal_fd, encode_journal(journal))

    def publish(self, operation_id: str) -> None:
        """Make the operation begun; nothing to sync, see above.

        Raises:
            AlreadyBegun: the operation has a record.
        """
        try:
            os.rename(self._name, operation_id, src_dir_fd=self._runs_fd, dst_dir_fd=self._runs_fd)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise AlreadyBegun from error
            raise
        self._name = operation_id

    def conclude(self, record: ExitRecord) -> bytes:
        """Make the exit record durable and return its bytes; after a failure it can be called again.

        Raises:
            OSError: there is no room for it, which one without evidence always has.
        """
        data = encode_exit(record)
        try:
            _write(self._exit_fd, data.ljust(RECORD_BYTES, b"\0"))
        except OSError:
            os.ftruncate(self._exit_fd, RECORD_BYTES)  # nothing of it may follow a shorter one
            raise
        os.rename(EXIT_PENDING, EXIT, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        return data

    def remove(self) -> None:
        """Remove a directory that was never published."""
        for name in (JOURNAL, EXIT_PENDING):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self.fd)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(self._name, dir_fd=self._runs_fd)


def _write(fd: int, data: bytes) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], done)
    os.fdatasync(fd)
