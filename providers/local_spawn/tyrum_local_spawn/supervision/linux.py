"""Linux process attributes that the standard library does not expose."""

import ctypes
import os
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36

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


def boot_id() -> str:
    """Return the identifier of the running kernel's boot."""
    fd = os.open("/proc/sys/kernel/random/boot_id", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 64).decode("ascii").strip()
    finally:
        os.close(fd)
