"""The file of signed heads: JSON lines that are only ever appended, outside the database.

Invariant: a head that `append` returned from is on the disk. A line that a crash cut off counts as no line;
the next one begins anew.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import Any

from tyrum_gateway.domain.audit import SignedHead
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.storage.new_file import sync_directory

_LONGEST_LINE = 1024
_TAIL = 16 * _LONGEST_LINE
_TOO_LARGE = 1 << 63


class HeadsFile:
    """Signed heads, oldest first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: tuple[int, int, int] | None = None
        """Device, inode and size after the last head that this process added."""

    def append(self, head: SignedHead) -> None:
        """Add a head, durably.

        Raises:
            OSError: The file takes no more, or is not the one with the heads that were added before.
        """
        self.require_kept()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            cut_off = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            line = (b"\n" if cut_off else b"") + encode(head).encode() + b"\n"
            if os.write(descriptor, line) != len(line):
                raise OSError(f"`{self.path}` took only a part of a line")
            os.fsync(descriptor)
            kept = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if not size:
            sync_directory(self.path.parent)
        self._kept = kept.st_dev, kept.st_ino, kept.st_size

    def require_kept(self) -> None:
        """Check that the heads which this process added are in place.

        Raises:
            OSError: The file was removed, replaced or cut short.
        """
        if self._kept is None:
            return
        device, inode, size = self._kept
        found = self.path.stat()
        if (found.st_dev, found.st_ino) != (device, inode) or found.st_size < size:
            raise OSError(f"`{self.path}` was replaced or cut short: restore it, see docs/guides/audit.md")

    def last(self) -> SignedHead | None:
        """Return the newest of the last heads; None when there is no file.

        Not just the last line: whoever may only append could repeat an old head, and go back to the database
        that it is over.

        Raises:
            StateUnusable: The file cannot be read, or holds something but no head at its end; or not even its
                directory is there, as when its disk is not mounted.
        """
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TAIL))
                tail = file.read(_TAIL)
        except FileNotFoundError:
            if not self.path.parent.is_dir():
                raise StateUnusable(
                    f"the directory of the audit heads `{self.path}` does not exist: is its disk mounted?"
                ) from None
            return None
        except OSError as error:
            raise StateUnusable(f"cannot read the audit heads `{self.path}`: {error.strerror}") from error
        heads = [head for line in tail.splitlines() if (head := decode(line)) is not None]
        # Nothing but blanks at the end of a long file hides its heads, it does not take them away.
        if not heads and (tail.strip() or size > _TAIL):
            raise StateUnusable(f"`{self.path}` holds no audit head: restore it, or move it away knowingly")
        return max(heads, key=attrgetter("sequence"), default=None)

    def read(self) -> Iterator[SignedHead]:
        """Yield all heads; lines that are none, such as one that a crash cut off, are left out.

        Raises:
            OSError: The file cannot be read.
        """
        with self.path.open("rb") as file:
            while line := file.readline(_LONGEST_LINE):
                head = decode(line)
                if head is not None:
                    yield head


def encode(head: SignedHead) -> str:
    """Write a head as one line of JSON."""
    return json.dumps(asdict(head), separators=(",", ":"))


def decode(line: bytes | str) -> SignedHead | None:
    """Read a line; None when it is no head."""
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    numbers: list[Any] = [value.get(name) for name in ("sequence", "at")]
    texts: list[Any] = [value.get(name) for name in ("hash", "key_id", "signature")]
    if not all(type(number) is int and abs(number) < _TOO_LARGE for number in numbers):
        return None
    # Half a surrogate pair is no text: neither a wire nor a terminal could hold it.
    if not all(isinstance(text, str) and text.isascii() for text in texts):
        return None
    (sequence, at), (row, key_id, signature) = numbers, texts
    return SignedHead(sequence, row, at, key_id, signature)
