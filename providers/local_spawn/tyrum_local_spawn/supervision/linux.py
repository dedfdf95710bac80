"""Linux process attributes that the standard library does not expose."""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36

OOM_SCORE: Final = 500
"""How much more likely a command is ended than its supervisor when memory runs out; of 1000."""
_MOST_OOM_SCORE: Final = 1000

_prctl = ctypes.CDLL(None, use_errno=True).prctl
_prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
_prctl.restype = ctypes.c_int


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of init's.

    Raises:
        OSError: the kernel refused.
    """
    _call(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signal_number: int) -> None:
    """Ask for a signal when the thread that forked this process ends; a change of user id clears it again.

    Raises:
        OSError: the kernel refused.
    """
    _call(_PR_SET_PDEATHSIG, signal_number)


def _call(option: int, value: int) -> None:
    if _prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@contextlib.contextmanager
def ended_first_without_memory() -> Iterator[None]:
    """Have what is started meanwhile ended before this process, gateway and provider when memory runs out.

    Where the kernel keeps no such score, nothing changes.
    """
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        own = int(os.pread(fd, 16, 0))
        os.pwrite(fd, str(min(own + OOM_SCORE, _MOST_OOM_SCORE)).encode(), 0)
        try:
            yield
        finally:
            # Back to what this process was given: the kernel lets anybody lower the score as far as that.
            with contextlib.suppress(PermissionError):
                os.pwrite(fd, str(own).encode(), 0)
    finally:
        os.close(fd)


def boot_id() -> str:
    """Return the identifier of the running kernel's boot."""
    fd = os.open("/proc/sys/kernel/random/boot_id", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 64).decode("ascii").strip()
    finally:
        os.close(fd)
