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
from typing import Final, NamedTuple

_REMEMBERED = 512
_SETTLED_NANOSECONDS = 100_000_000
_CHUNK = 1 << 20

PLACES: Final = (b"$ORIGIN", b"${ORIGIN}", b"/proc/self/exe", b"/proc/curproc/exe")
"""What stands in a program that looks for its own place, as the contract lists it."""
_OVERLAP: Final = max(map(len, PLACES)) - 1

Key = tuple[int, int, int, int, int]


class Content(NamedTuple):
    """What a file holds."""

    sha256: str
    """64 hexadecimal digits."""
    own_place: bool
    """Whether one of `PLACES` stands in it."""


class Digests:
    """A bounded memory of digests; threads may share it."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, Content] = OrderedDict()

    def known(self, status: os.stat_result) -> Content | None:
        """Return the content of the file with this status, if it is remembered."""
        return self._known.get(key_of(status))

    def compute(self, descriptor: int, limit: int) -> Content | None:
        """Digest an open regular file from its beginning and remember it.

        Args:
            descriptor: Stays open.
            limit: Largest size in bytes.

        Returns:
            The content; None when it is no regular file, above the limit, or changes meanwhile.

        Raises:
            OSError: It cannot be read.
        """
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode) or before.st_size > limit:
            return None
        remembered = self.known(before)
        if remembered is not None:
            return remembered
        digest, offset, seen, own_place = hashlib.sha256(), 0, b"", False
        while chunk := os.pread(descriptor, _CHUNK, offset):
            digest.update(chunk)
            seen = seen[-_OVERLAP:] + chunk
            own_place = own_place or any(place in seen for place in PLACES)
            offset += len(chunk)
            if offset > limit:
                return None
        key = key_of(before)
        if key_of(os.fstat(descriptor)) != key:
            return None
        value = Content(digest.hexdigest(), own_place)
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
