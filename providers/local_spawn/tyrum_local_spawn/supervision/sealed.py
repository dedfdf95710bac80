"""A copy of a program that nothing can change any more, for programs that others than root can write.

Between the comparison of a digest and the execution a file can be written in place; a sealed copy cannot. A
program that looks for its own place would not find what lies beside it: such a one is executed as it is.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
from typing import Final, NamedTuple

LARGEST: Final = 256 * 1024 * 1024
"""Bytes of the largest copy; it counts as memory."""

PLACES: Final = (b"$ORIGIN", b"${ORIGIN}", b"/proc/self/exe", b"/proc/curproc/exe")
"""What stands in a program that looks for its own place."""

_BLOCK: Final = 1024 * 1024
_OVERLAP: Final = max(map(len, PLACES)) - 1
_MFD_EXEC: Final = 0x10
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class Copy(NamedTuple):
    """A sealed copy."""

    fd: int
    """To be executed; the caller closes it."""
    sha256: str
    """Of what it holds."""


def writable(status: os.stat_result) -> bool:
    """Tell whether others than root can write a file; its owner can."""
    return status.st_uid != 0 or bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def copy_of(fd: int) -> Copy | None:
    """Copy an open program and seal the copy.

    Returns:
        None where there can be none: the program looks for its own place or is too large, or the machine
        executes no such copies (`vm.memfd_noexec`).
    """
    if os.fstat(fd).st_size > LARGEST:
        return None
    writing = _memory_file()
    if writing is None:
        return None
    try:
        digest, offset, seen = hashlib.sha256(), 0, b""
        while block := os.pread(fd, _BLOCK, offset):
            seen = seen[-_OVERLAP:] + block
            if offset + len(block) > LARGEST or any(place in seen for place in PLACES):
                return None
            digest.update(block)
            offset += len(block)
            while block:
                block = block[os.write(writing, block) :]
        fcntl.fcntl(writing, fcntl.F_ADD_SEALS, _SEALS)
        # What is open for writing cannot be executed.
        return Copy(os.open(f"/proc/self/fd/{writing}", os.O_RDONLY | os.O_CLOEXEC), digest.hexdigest())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT):
            return None
        raise
    finally:
        os.close(writing)


def _memory_file() -> int | None:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    for more in (_MFD_EXEC, 0):  # a kernel before 6.3 does not know the flag and executes every such file
        with contextlib.suppress(OSError):
            fd = os.memfd_create("program", flags | more)
            if os.fstat(fd).st_mode & 0o111:
                return fd
            os.close(fd)
    return None
