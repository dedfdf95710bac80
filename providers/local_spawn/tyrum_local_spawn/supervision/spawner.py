"""The process that forks supervisors: started once per provider, warm, single-threaded, and nobody's owner.

It keeps a few idle supervisors waiting on the socket it shares with them, so that a run begins with a message
instead of a fork. It is a subreaper too: what a killed supervisor leaves behind becomes its child, and
is killed. When the provider is gone it stays until the supervisors have ended their runs.
"""

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import time
from typing import Final

from tyrum_local_spawn.supervision import linux, tree
from tyrum_local_spawn.supervision.supervisor import TAKEN, supervise
from tyrum_local_spawn.supervision.workplace import IDLE_PREFIX

IDLE_SUPERVISORS: Final = 4
_REFILL_SECONDS: Final = 0.03
"""How long refilling waits while enough are idle, so that forking does not slow the runs that just began."""
_ENDED_SECONDS: Final = 0.004
"""How long it waits once all of them have ended, so that it does not slow the answers either."""
_RETRY_SECONDS: Final = 0.5
"""How long refilling waits after a fork or an idle supervisor failed, so that neither makes a storm."""
_LEAVE_SECONDS: Final = 60.0


def main() -> None:
    """Run until the provider is gone. Arguments: control socket, directory of the runs (both inherited)."""
    control = socket.socket(fileno=int(sys.argv[1]))
    runs_fd = int(sys.argv[2])
    for fd in (control.fileno(), runs_fd):
        os.set_inheritable(fd, False)  # noqa: FBT003 - the standard library's signature
    linux.become_subreaper()
    gc.disable()
    gc.freeze()
    _Spawner(control, runs_fd).run()


class _Spawner:
    def __init__(self, control: socket.socket, runs_fd: int) -> None:
        self._control = control
        self._runs_fd = runs_fd
        self._taken_read, self._taken_write = os.pipe2(os.O_CLOEXEC)
        self._wakeup_read, self._wakeup_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._idle: set[int] = set()
        self._busy: set[int] = set()
        self._boot_id = linux.boot_id()
        self._refill_at = 0.0
        self._failing = False

    def run(self) -> None:
        poll = select.poll()
        poll.register(self._control, 0)  # only the hang-up: the idle supervisors read the orders
        poll.register(self._taken_read, select.POLLIN)
        poll.register(self._wakeup_read, select.POLLIN)
        while True:
            self._refill()
            missing = len(self._idle) < IDLE_SUPERVISORS
            patience = max(0.0, (self._refill_at - time.monotonic()) * 1000) if missing else None
            for fd, _ in poll.poll(patience):
                if fd == self._taken_read:
                    self._note_taken()
                elif fd == self._wakeup_read:
                    self._collect()
                else:
                    self._leave()
                    return

    def _refill(self) -> None:
        """Fork one supervisor if one is missing: at once when few are left, else when the moment has come."""
        missing = IDLE_SUPERVISORS - len(self._idle)
        if missing <= 0:
            return
        patient = self._failing or missing < IDLE_SUPERVISORS - 1
        if patient and time.monotonic() < self._refill_at:
            return
        try:
            pid = os.fork()
        except OSError:  # no process or memory is left for now
            self._fail()
            return
        self._failing = False
        if pid == 0:
            os.close(self._taken_read)
            os.close(self._wakeup_read)
            signal.set_wakeup_fd(-1)
            os.close(self._wakeup_write)
            supervise(self._control, self._taken_write, self._runs_fd, self._boot_id)
        self._idle.add(pid)

    def _note_taken(self) -> None:
        for (pid,) in TAKEN.iter_unpack(os.read(self._taken_read, 64 * TAKEN.size)):
            if pid in self._idle:
                self._idle.discard(pid)
                self._busy.add(pid)
        self._refill_at = time.monotonic() + _REFILL_SECONDS

    def _collect(self) -> None:
        """Reap what ended, and kill what a killed supervisor left behind."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup_read, 4096)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)) is not None:
                self._forget(ended.si_pid)
        own = self._idle | self._busy
        for pid in tree.children(os.getpid()):
            if pid not in own:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def _forget(self, pid: int) -> None:
        if pid in self._busy:
            self._busy.discard(pid)
            if not self._busy and not self._failing:
                self._refill_at = min(self._refill_at, time.monotonic() + _ENDED_SECONDS)
        if pid in self._idle:  # it ended without having had an order
            self._idle.discard(pid)
            self._fail()
            with contextlib.suppress(OSError):
                _remove_idle_directory(self._runs_fd, pid)

    def _fail(self) -> None:
        self._failing = True
        self._refill_at = time.monotonic() + _RETRY_SECONDS

    def _leave(self) -> None:
        """Wait for the supervisors, who have noticed themselves, and clean up behind killed ones."""
        self._control.close()
        end = time.monotonic() + _LEAVE_SECONDS
        poll = select.poll()
        poll.register(self._wakeup_read, select.POLLIN)
        while tree.children(os.getpid()) and time.monotonic() < end:
            self._collect()
            poll.poll(50)


def _remove_idle_directory(runs_fd: int, pid: int) -> None:
    name = f"{IDLE_PREFIX}{pid}"
    fd = os.open(name, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=runs_fd)
    try:
        for entry in os.listdir(fd):  # noqa: PTH208 - the spawner does not load pathlib
            os.unlink(entry, dir_fd=fd)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=runs_fd)
