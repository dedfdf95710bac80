"""Content digests of files, remembered by the identity of their content.

Invariant: a remembered digest is used only for the same inode with the same size and times, and is only
remembered when the file was last changed well before it was read, so that a write within one tick of the
file system's clock is not missed.
"""

import hashlib
import os
import stat
import time
from collections import OrderedDict

_REMEMBERED = 512
_SETTLED_NANOSECONDS = 100_000_000
_CHUNK = 1 << 20

Key = tuple[int, int, int, int, int]


class Digests:
    """A bounded memory of digests; threads may share it."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, str] = OrderedDict()

    def known(self, status: os.stat_result) -> str | None:
        """Return the digest of the file with this status, if it is remembered."""
        return self._known.get(key_of(status))

    def compute(self, descriptor: int, limit: int) -> str | None:
        """Digest an open regular file from its beginning and remember it.

        Args:
            descriptor: Stays open.
            limit: Largest size in bytes.

        Returns:
            64 hexadecimal digits; None when it is no regular file, above the limit, or changes meanwhile.

        Raises:
            OSError: It cannot be read.
        """
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode) or before.st_size > limit:
            return None
        remembered = self.known(before)
        if remembered is not None:
            return remembered
        content, offset = hashlib.sha256(), 0
        while chunk := os.pread(descriptor, _CHUNK, offset):
            content.update(chunk)
            offset += len(chunk)
            if offset > limit:
                return None
        key = key_of(before)
        if key_of(os.fstat(descriptor)) != key:
            return None
        value = content.hexdigest()
        if time.time_ns() - max(before.st_mtime_ns, before.st_ctime_ns) > _SETTLED_NANOSECONDS:
            self._known[key] = value
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return value

    def forget(self) -> None:
        """Drop everything: somebody saw content that differs from a remembered digest."""
        self._known.clear()


def key_of(status: os.stat_result) -> Key:
    """Identify a file's content without reading it."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
