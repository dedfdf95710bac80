"""What becomes of a run whose supervisor may be gone without having recorded the end.

Invariant: a supervisor is ended only when it provably holds the run's journal, and what is said of a lost run
is what its spools still prove.
"""

import contextlib
import fcntl
import hashlib
import os
import signal
import time
from pathlib import Path
from typing import Final

from tyrum_local_spawn.supervision.record import (
    EVIDENCE_BYTES,
    NO_OUTPUT,
    STREAMS,
    Cause,
    ExitRecord,
    Journal,
    StreamEnd,
)

_POLL_SECONDS: Final = 0.01
_BLOCK_BYTES: Final = 1024 * 1024


def lost(directory: Path, journal: Journal) -> ExitRecord:
    """Return the end of a run that began and whose end nobody saw."""
    stdout, stderr = (_salvage(directory / name, journal.spool_bytes) for name in STREAMS)
    now = time.time_ns()
    return ExitRecord(
        cause=Cause.LOST,
        exit_code=None,
        signal=None,
        started_at_ns=journal.recorded_at_ns,
        ended_at_ns=now,
        duration_ns=max(0, now - journal.recorded_at_ns),
        stdout=stdout,
        stderr=stderr,
        tree_empty=False,
        detail="the supervisor ended without a record",
    )


def _salvage(spool: Path, cap: int) -> StreamEnd:
    """Return what the spool of a lost run still proves: all of it, or its head once the ring had wrapped."""
    try:
        with spool.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            left = size if size < cap else cap // 4
            head, tail = file.read(min(left, EVIDENCE_BYTES)), b""
            digest, total = hashlib.sha256(head), len(head)
            while block := file.read(min(left - total, _BLOCK_BYTES)):
                digest.update(block)
                total += len(block)
                tail = (tail + block)[-EVIDENCE_BYTES:]
    except FileNotFoundError:
        return NO_OUTPUT
    return StreamEnd(
        total_bytes=total,
        sha256=digest.hexdigest(),
        head=head,
        tail=tail,
        stored_bytes=total,
        spool_bytes=cap,
        dropped_bytes=0,
    )


def kill_holder(journal_fd: int, pid: int) -> None:
    """Kill a supervisor that does not end by itself, if the process of that id really holds the journal.

    Raises:
        OSError: descriptors or memory are short, so that it could not be looked at.
    """
    wanted = os.fstat(journal_fd)
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                status = link.stat()
                if (status.st_dev, status.st_ino) == (wanted.st_dev, wanted.st_ino):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    return
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # it has ended, or is another's
        return
    finally:
        os.close(pidfd)


def locked(fd: int, until: float) -> bool:
    """Lock a file, or tell that it cannot be had until then; it is tried once in any case."""
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_SECONDS)
        else:
            return True
