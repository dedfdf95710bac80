"""The bounded memory of one output stream: every byte counted and hashed, head and newest bytes kept.

The spool file holds the first quarter of its cap as they came, the rest is a ring of the newest bytes.
Whatever happens to the file, counting and hashing go on and the command is never held up.
"""

import contextlib
import hashlib
import os
from dataclasses import dataclass
from typing import Final

from tyrum_local_spawn.supervision.record import EVIDENCE_BYTES, StreamEnd

MIN_SPOOL_BYTES: Final = 4 * EVIDENCE_BYTES
"""Smallest cap: its head covers the evidence head, its ring the evidence tail."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes read back from a spool."""

    offset: int
    """Absolute offset of the first byte of `data`."""
    data: bytes
    dropped_before: int
    """Bytes between the wanted offset and `offset` that are gone."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where absolute offsets live in a spool file."""

    cap: int
    stored: int
    """End of the stored bytes; everything from here to the stream's total is gone."""

    @property
    def head(self) -> int:
        """Bytes kept from the start of the stream."""
        return self.cap // 4

    @property
    def ring(self) -> int:
        """Bytes of the ring behind the head."""
        return self.cap - self.head

    @property
    def ring_start(self) -> int:
        """Absolute offset of the oldest byte in the ring."""
        return max(self.head, self.stored - self.ring)

    @property
    def held(self) -> int:
        """Bytes that can be read back."""
        return min(self.stored, self.head) + max(0, self.stored - self.ring_start)

    def place(self, offset: int) -> tuple[int, int]:
        """Return the file position of an absolute offset and how many bytes follow without a wrap."""
        if offset < self.head:
            return offset, self.head - offset
        turn = (offset - self.head) % self.ring
        return self.head + turn, self.ring - turn


def read_piece(fd: int | None, layout: Layout, total: int, offset: int, limit: int) -> Piece:
    """Read at most `limit` bytes from the first held byte at or after `offset` (which is at most `total`).

    Without a file, or when the file is shorter than it must be, the bytes count as dropped.
    """
    start = offset
    if layout.head <= start < layout.ring_start:
        start = layout.ring_start
    end = layout.stored if start >= layout.ring_start else min(layout.stored, layout.head)
    parts: list[bytes] = []
    position = start
    while fd is not None and position < end and position - start < limit:
        place, room = layout.place(position)
        data = os.pread(fd, min(room, end - position, limit - (position - start)), place)
        if not data:
            break
        parts.append(data)
        position += len(data)
    if parts:
        return Piece(start, b"".join(parts), start - offset)
    return Piece(total, b"", total - offset)


class Spool:
    """Takes one stream's bytes; used by the supervisor only."""

    def __init__(self, directory_fd: int, name: str, cap: int) -> None:
        self._directory_fd = directory_fd
        self._name = name
        self._cap = cap
        self._fd: int | None = None
        self._broken = False
        self._hash = hashlib.sha256()
        self._head = bytearray()
        self._tail = bytearray()
        self._stored = 0
        self.total = 0

    def append(self, data: memoryview) -> None:
        """Count, hash and keep bytes."""
        self._hash.update(data)
        self._remember(data)
        if not self._broken:
            try:
                self._write(data)
            except OSError:
                # A full or failing disk costs the spool, never the run: the ring may be torn, not the head.
                self._broken = True
                self._stored = min(self._stored, self._cap // 4)
        self.total += len(data)

    def give_up(self) -> None:
        """Drop everything that is stored, so that its room is free for the record; the evidence stays."""
        self._broken = True
        self._stored = 0
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)

    def read(self, offset: int, limit: int) -> Piece:
        """Read back at most `limit` bytes at or after `offset`, which is at most `total`."""
        return read_piece(self._fd, self._layout(), self.total, offset, limit)

    def end(self) -> StreamEnd:
        """Return the evidence over everything that came."""
        return StreamEnd(
            total_bytes=self.total,
            sha256=self._hash.hexdigest(),
            head=bytes(self._head),
            tail=bytes(self._tail[-EVIDENCE_BYTES:]),
            stored_bytes=self._stored,
            spool_bytes=self._cap,
            dropped_bytes=self.total - self._layout().held,
        )

    def _layout(self) -> Layout:
        return Layout(self._cap, self._stored)

    def _remember(self, data: memoryview) -> None:
        missing = EVIDENCE_BYTES - len(self._head)
        if missing > 0:
            self._head += data[:missing]
            data = data[missing:]
        if len(data) >= EVIDENCE_BYTES:
            self._tail = bytearray(data[-EVIDENCE_BYTES:])
        elif data:
            self._tail += data
            if len(self._tail) > 2 * EVIDENCE_BYTES:
                del self._tail[:-EVIDENCE_BYTES]

    def _write(self, data: memoryview) -> None:
        if self._fd is None:
            flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self._name, flags, 0o600, dir_fd=self._directory_fd)
        layout = self._layout()
        offset, end = self._stored, self._stored + len(data)
        while offset < end:
            if offset >= layout.head and end - offset > layout.ring:
                offset = end - layout.ring  # these bytes would be overwritten by the same call
            place, room = layout.place(offset)
            done = len(data) - (end - offset)
            offset += os.pwrite(self._fd, data[done : done + room], place)
        self._stored = end
