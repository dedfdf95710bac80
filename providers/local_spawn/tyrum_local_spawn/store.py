"""The records under the state directory: found, judged, written and swept.

Invariant: what does not check is damage and stays where it is for the operator; nothing is reset, guessed or
overwritten. Everything here blocks on disk and runs in a worker thread.
"""

import contextlib
import errno
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tyrum_local_spawn import settling
from tyrum_local_spawn.failures import Broken
from tyrum_local_spawn.ids import OperationId
from tyrum_local_spawn.supervision import linux
from tyrum_local_spawn.supervision.record import (
    EXIT,
    EXIT_PENDING,
    JOURNAL,
    STREAMS,
    TOMBSTONE,
    DamagedRecord,
    ExitRecord,
    Journal,
    StreamEnd,
    Tombstone,
    decode_exit,
    decode_journal,
    decode_tombstone,
    encode_exit,
    encode_tombstone,
)
from tyrum_local_spawn.supervision.spool import Layout, Piece, read_piece
from tyrum_local_spawn.supervision.workplace import IDLE_PREFIX
from tyrum_provider_kit.journal import IDENTITY_FILE, ORIGIN_FILE, journal_identity

OPERATION_ID: Final = re.compile(r"op_[0-9a-z]{26}")
_KEY_BYTES: Final = 32
_OWNER_SECONDS: Final = 4.0
"""How long a predecessor, or a supervisor whose provider is gone, may take to finish."""
_KILLED_SECONDS: Final = 4.0
"""How long a supervisor may take to be gone once it was killed."""
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_MAKING: Final = ".new"
_UNOWNED: Final = "."
"""Prefix of directories in the making and in removal."""
_IDENTITY: Final = frozenset({IDENTITY_FILE, ORIGIN_FILE})


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run that began: its journal, and how it ended if that was recorded."""

    journal: Journal
    exit: ExitRecord | None


@dataclass(frozen=True, slots=True)
class Damage:
    """A record that does not check."""

    operation_id: OperationId
    problem: str


Found = RunRecord | Tombstone | Damage


class Store:
    """The state directory of one provider; one process at a time holds it."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self.runs = state_dir / "runs"
        self.identity = ""
        """Of the journal; it stands among the records, and is lost with them."""
        self._lock_fd: int | None = None

    def open(self) -> None:
        """Create what is missing and take possession, waiting a little for a predecessor that is ending.

        Raises:
            Broken: another provider process holds the state directory.
        """
        self.runs.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(self._state_dir / "provider.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        if not settling.locked(fd, time.monotonic() + _OWNER_SECONDS):
            os.close(fd)
            raise Broken("another provider process holds the state directory")
        self._lock_fd = fd
        _sync_directory(self._state_dir)
        self.identity = journal_identity(self.runs)

    def close(self) -> None:
        """Give the state directory up."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def digest_key(self) -> bytes:
        """Return the key of spec digests, made once per state directory.

        Raises:
            DamagedRecord: it is not readable, or missing although there are records that depend on it.
        """
        path = self._state_dir / "digest.key"
        try:
            key = path.read_bytes()
        except FileNotFoundError:
            if any(self._operations()):
                raise DamagedRecord("digest.key is missing although there are records") from None
            key = secrets.token_bytes(_KEY_BYTES)
            _write_durably(path, key)
            return key
        if len(key) != _KEY_BYTES:
            raise DamagedRecord(f"digest.key is not {_KEY_BYTES} bytes long")
        return key

    def sweep(self) -> None:
        """Remove whatever no record owns, after giving a crash of the host back what it took."""
        for path in list(self.runs.iterdir()):
            if not OPERATION_ID.fullmatch(path.name) and path.name not in _IDENTITY:
                self._publish_again(path)
                _remove(path)
        _sync_directory(self.runs)

    def _publish_again(self, idle: Path) -> None:
        """Rename a directory whose journal is of another boot: its own rename was lost with that.

        On this boot a journal under an idle name means that its supervisor ended before the command executed,
        and one that does not check was never synced: nothing has executed either.
        """
        if not idle.name.startswith(IDLE_PREFIX):
            return
        try:
            journal = decode_journal((idle / JOURNAL).read_bytes())
        except (OSError, DamagedRecord):
            return
        if journal.boot_id != linux.boot_id() and OPERATION_ID.fullmatch(journal.operation_id):
            with contextlib.suppress(OSError):  # whoever has the name began, or sealed, the operation before
                idle.rename(self.runs / journal.operation_id)

    def scan(self) -> list[Found]:
        """Judge every record; all runs without an end together get the time that `load` gives one."""
        until = time.monotonic() + _OWNER_SECONDS
        return [self.load(operation_id, until) for operation_id in self._operations()]

    def load(self, operation_id: OperationId, until: float | None = None) -> Found:
        """Judge one record. A run whose supervisor is gone without an exit record is settled as LOST.

        One that is still there has until then, on the monotonic clock, or for some seconds, and is ended.

        Raises:
            OSError: descriptors or memory are short, which says nothing about the record.
        """
        try:
            found = self._read(operation_id)
            if isinstance(found, RunRecord) and found.exit is None:
                end = self._settle(operation_id, until or time.monotonic() + _OWNER_SECONDS)
                return RunRecord(found.journal, end)
        except DamagedRecord as error:
            return Damage(operation_id, str(error))
        except OSError as error:
            if error.errno in _SHORTAGES:
                raise
            return Damage(operation_id, f"cannot be read: {error.strerror}")
        return found

    def _settle(self, operation_id: OperationId, until: float) -> ExitRecord:
        """Wait for the supervisor to be gone and return the run's end, recording LOST when it left none."""
        directory = self.runs / operation_id
        fd = os.open(directory / JOURNAL, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not settling.locked(fd, until):
                settling.kill_holder(fd, decode_journal((directory / JOURNAL).read_bytes()).supervisor_pid)
                if not settling.locked(fd, time.monotonic() + _KILLED_SECONDS):
                    raise DamagedRecord("the run's supervisor neither ends nor can be ended")
            found = self._read(operation_id)
            if not isinstance(found, RunRecord):
                raise DamagedRecord("the run's journal was replaced")
            if found.exit is not None:
                return found.exit
            return self._record_lost(directory, found.journal)
        finally:
            os.close(fd)

    def _record_lost(self, directory: Path, journal: Journal) -> ExitRecord:
        """Record a lost run; on a full disk what is stored of it makes room, as for a supervisor's record."""
        lost = settling.lost(directory, journal)
        try:
            _write_durably(directory / EXIT, encode_exit(lost))
        except OSError as error:
            if error.errno not in _FULL:
                raise
            for name in (*STREAMS, EXIT_PENDING, f"{EXIT}{_MAKING}"):
                (directory / name).unlink(missing_ok=True)
            lost = lost.without_evidence()
            lost = replace(lost, stdout=_unspooled(lost.stdout), stderr=_unspooled(lost.stderr))
            _write_durably(directory / EXIT, encode_exit(lost))
        return lost

    def entomb(self, operation_id: OperationId) -> Tombstone | None:
        """Record durably that an operation will never start; None when it has a record already.

        Raises:
            OSError: the disk takes no record, or the records are not those that this process opened.
        """
        if journal_identity(self.runs) != self.identity:
            raise OSError(errno.ESTALE, "the records were replaced while the provider ran")
        tombstone = Tombstone(operation_id, time.time_ns())
        # Of its own name: a caller who has left may still be making another.
        making = Path(tempfile.mkdtemp(prefix=f"{_UNOWNED}tombstone-", dir=self.runs))
        try:
            _write_durably(making / TOMBSTONE, encode_tombstone(tombstone))
            making.rename(self.runs / operation_id)
        except OSError:
            _remove(making)
            if (self.runs / operation_id).exists():
                return None
            raise
        _sync_directory(self.runs)
        return tombstone

    def release(self, operation_id: OperationId) -> None:
        """Remove a record and everything it owns; in one step as far as a crash can tell."""
        leaving = self.runs / f"{_UNOWNED}released-{operation_id}"
        with contextlib.suppress(FileNotFoundError):
            (self.runs / operation_id).rename(leaving)
        _remove(leaving)

    def exit_record(self, operation_id: OperationId) -> ExitRecord:
        """Read an exit record with its evidence.

        Raises:
            DamagedRecord: it does not check, or was released.
        """
        found = self._read(operation_id)
        if not isinstance(found, RunRecord) or found.exit is None:
            raise DamagedRecord("the exit record is missing")
        return found.exit

    def read_spool(
        self, operation_id: OperationId, stream: int, end: StreamEnd, offset: int, limit: int
    ) -> Piece:
        """Read at most `limit` bytes of an ended stream at or after `offset`, which is at most its total."""
        layout = Layout(end.spool_bytes, end.stored_bytes)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(self.runs / operation_id / STREAMS[stream], flags)
        except FileNotFoundError:
            return read_piece(None, layout, end.total_bytes, offset, limit)
        try:
            return read_piece(fd, layout, end.total_bytes, offset, limit)
        finally:
            os.close(fd)

    def has_record(self, operation_id: OperationId) -> bool:
        """Tell whether something stands under the operation's name, or that cannot be told."""
        try:
            (self.runs / operation_id).lstat()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True

    def has_space(self, wanted: int) -> bool:
        """Tell whether the disk has room for one more record and `wanted` bytes."""
        free = os.statvfs(self.runs)
        return free.f_bavail * free.f_frsize >= wanted

    def _operations(self) -> Iterator[OperationId]:
        for path in sorted(self.runs.iterdir()):
            if OPERATION_ID.fullmatch(path.name):
                yield OperationId(path.name)

    def _read(self, operation_id: OperationId) -> Found:
        directory = self.runs / operation_id
        if (directory / TOMBSTONE).exists():
            tombstone = decode_tombstone((directory / TOMBSTONE).read_bytes())
            _belongs(operation_id, tombstone.operation_id)
            return tombstone
        try:
            journal = decode_journal((directory / JOURNAL).read_bytes())
        except FileNotFoundError:
            raise DamagedRecord("the journal is missing") from None
        _belongs(operation_id, journal.operation_id)
        end = self._read_exit(directory)
        if journal.boot_id != linux.boot_id():
            # Spools are not synced: after a crash of the host their bytes cannot be vouched for.
            for name in STREAMS:
                (directory / name).unlink(missing_ok=True)
            if end is not None:
                end = replace(end, stdout=_unspooled(end.stdout), stderr=_unspooled(end.stderr))
        return RunRecord(journal, end)

    def _read_exit(self, directory: Path) -> ExitRecord | None:
        with contextlib.suppress(FileNotFoundError):
            return decode_exit((directory / EXIT).read_bytes())
        with contextlib.suppress(FileNotFoundError, DamagedRecord):
            # Synced, but its writer ended before renaming it; cut short, it was never acknowledged.
            record = decode_exit((directory / EXIT_PENDING).read_bytes())
            (directory / EXIT_PENDING).rename(directory / EXIT)
            return record
        return None


def _belongs(operation_id: OperationId, recorded: str) -> None:
    if recorded != operation_id:
        raise DamagedRecord("the record belongs to another operation")


def _unspooled(stream: StreamEnd) -> StreamEnd:
    return replace(stream, stored_bytes=0, dropped_bytes=stream.total_bytes)


def _write_durably(path: Path, data: bytes) -> None:
    """Give `path` this content: all of it, durably, or nothing."""
    making = path.with_name(f"{path.name}{_MAKING}")
    with making.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    making.rename(path)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_DIRECTORY | os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
