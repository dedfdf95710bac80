"""The command's output on its way into the spool, and the readers who wait for it.

Every wake-up reads a bounded amount, so that timers and cancellation still fire under a flood.
"""

import contextlib
import fcntl
import os
from dataclasses import dataclass
from typing import Final

from tyrum_local_spawn.supervision.frames import MAX_CHUNK_BYTES
from tyrum_local_spawn.supervision.spool import Spool

_PIPE_BYTES: Final = 1024 * 1024
FLUSH_SECONDS: Final = 0.02
"""How long bytes may wait for more of them before a follower gets them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One READ that has no answer yet."""

    request: int
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class PipeEnds:
    """A pipe whose reading end never blocks."""

    read_fd: int
    write_fd: int


def open_pipe() -> PipeEnds:
    """Open a large pipe; a small one where the user's limit of pipe memory is reached."""
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read_fd, False)
    with contextlib.suppress(OSError):
        fcntl.fcntl(read_fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return PipeEnds(read_fd, write_fd)


class OutputPipe:
    """One stream: the pipe's reading end, its spool and its waiting readers."""

    def __init__(self, spool: Spool, fd: int) -> None:
        self.spool = spool
        self.fd = fd
        self.open = True
        self.waiting: list[Wanted] = []
        self._flush_at: float | None = None

    def pump(self, buffer: memoryview, now: float) -> int:
        """Read once, at most the buffer's size; return how many bytes came, 0 at end of file too."""
        try:
            count = os.readv(self.fd, [buffer])
        except BlockingIOError:
            return 0
        if count == 0:
            self.close()
            return 0
        self.spool.append(buffer[:count])
        if self.waiting and self._flush_at is None:
            self._flush_at = now + FLUSH_SECONDS
        return count

    def drain(self, buffer: memoryview) -> None:
        """Take what is left once the tree is gone; a foreign holder of the pipe cannot keep this going."""
        left = 2 * _PIPE_BYTES
        while self.open and left > 0:
            count = self.pump(buffer, 0.0)
            if count == 0:
                break
            left -= count
        self.close()

    def close(self) -> None:
        """Stop reading."""
        if self.open:
            self.open = False
            os.close(self.fd)

    def want(self, wanted: Wanted, now: float) -> None:
        """Let a reader wait for bytes after its offset."""
        self.waiting.append(wanted)
        if self.spool.total > wanted.offset and self._flush_at is None:
            self._flush_at = now + FLUSH_SECONDS

    def forget(self, request: int) -> None:
        """Drop a reader that went away."""
        self.waiting = [wanted for wanted in self.waiting if wanted.request != request]

    def due(self, now: float) -> list[Wanted]:
        """Take the readers whose bytes are enough or have waited long enough."""
        late = self._flush_at is not None and now >= self._flush_at
        ready = [
            wanted
            for wanted in self.waiting
            if (available := self.spool.total - wanted.offset) >= min(wanted.limit, MAX_CHUNK_BYTES)
            or (late and available > 0)
        ]
        if ready:
            self.waiting = [wanted for wanted in self.waiting if wanted not in ready]
        if late or not self.waiting:
            self._flush_at = None
        return ready

    @property
    def flush_at(self) -> float | None:
        """When a waiting reader must be answered, on the monotonic clock."""
        return self._flush_at
