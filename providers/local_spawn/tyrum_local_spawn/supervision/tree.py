"""Finding and ending the descendants of a process.

A supervisor is a child subreaper: whoever loses its parent becomes its child, so every living descendant
hangs below it, however often it forked or called setsid. What this cannot do is be atomic: a tree that forks
faster than it is walked is chased until it is empty or the time is up, and the record says which.
"""

# The spawner and its children do not load pathlib.
# ruff: noqa: PTH110, PTH208

import contextlib
import os
import signal
from collections.abc import Container


def children(pid: int) -> list[int]:
    """Return the children of a process, zombies included; empty when it is gone."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            found += _listed(f"/proc/{pid}/task/{thread}/children")
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{thread}"):
                return _scanned(pid)  # a kernel without CONFIG_PROC_CHILDREN
        except OSError:
            continue
    return found


def _listed(path: str) -> list[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while block := os.read(fd, 65536):
            text += block
    finally:
        os.close(fd)
    return [int(word) for word in text.split()]


def _scanned(parent: int) -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(int(name)) == parent]


def _parent(pid: int) -> int | None:
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        stat = os.read(fd, 4096)
    except OSError:
        return None
    finally:
        os.close(fd)
    return int(stat.rpartition(b")")[2].split()[1])


def kill_descendants(root: int, spare: Container[int] = ()) -> int:
    """Send SIGKILL to everything below `root`, which must be the calling process.

    Children of the caller cannot vanish before the caller reaps them, so their ids are safe. A deeper process
    is held by a pidfd and its parent is read again before the signal, so that a reused id is not hit.

    Returns:
        How many processes were signalled.
    """
    signalled = 0
    level = [(root, child) for child in children(root) if child not in spare]
    while level:
        below: list[tuple[int, int]] = []
        for parent, pid in level:
            below += [(pid, child) for child in children(pid)]
            signalled += _kill(pid, parent, direct=parent == root)
        level = below
    return signalled


def _kill(pid: int, parent: int, *, direct: bool) -> int:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if direct:
            os.kill(pid, signal.SIGKILL)
            return 1
        pidfd = os.pidfd_open(pid)
        try:
            # A parent that died meanwhile left its child to the subreaper: the next sweep finds it there.
            if _parent(pid) == parent:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return 1
        finally:
            os.close(pidfd)
    return 0


def reap(root: int, spare: Container[int] = ()) -> None:
    """Collect the zombies among the caller's children, except those in `spare`."""
    for pid in children(root):
        if pid not in spare:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
