"""The step at which a checked target becomes a running command.

Nothing of the provider reaches the command: exact environment, three descriptors, default signals, umask 022,
no core files, its own session, the first to be ended when memory runs out. Whatever fails, fails before the
command executes.
"""

import contextlib
import errno
import os
import resource
import signal
import sys
from typing import Final, NoReturn

from tyrum_local_spawn.supervision import linux
from tyrum_local_spawn.supervision.order import Order, RunAs
from tyrum_local_spawn.supervision.target import Target

_UMASK: Final = 0o022
_CATCHABLE: Final = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
_ERRNO_BYTES: Final = 4


class LaunchFailed(Exception):
    """The command did not execute and never will; `code` is the errno."""

    def __init__(self, code: int) -> None:
        super().__init__(os.strerror(code))
        self.code = code

    @property
    def transient(self) -> bool:
        """Whether no process could be made at all, whatever the program."""
        return self.code in (errno.EAGAIN, errno.ENOMEM)


def prepare_inheritance() -> None:
    """Give this process the attributes that its command is to inherit."""
    os.umask(_UMASK)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def enter(directory_fd: int, run_as: RunAs | None) -> None:
    """Go to the command's working directory, with the rights of the command's user.

    Raises:
        OSError: that user cannot enter it.
    """
    if run_as is None:
        os.fchdir(directory_fd)
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(run_as.gid)
    os.seteuid(run_as.uid)
    try:
        os.fchdir(directory_fd)
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def launch(order: Order, target: Target, stdio: tuple[int, int, int]) -> int:
    """Execute the command in the present working directory and return its process id, once it executes.

    Raises:
        LaunchFailed: it does not.
    """
    path: str = order.program.path if target.script else f"/proc/self/fd/{target.program_fd}"
    try:
        if target.script:
            status = os.stat(path)  # noqa: PTH116 - pathlib is not loaded here
            if (status.st_dev, status.st_ino) != (target.device, target.inode):
                raise FileNotFoundError(errno.ENOENT, "replaced")
        with linux.ended_first_without_memory():
            if order.run_as is not None:
                return _launch_as(order.run_as, path, order, stdio)
            return os.posix_spawn(
                path,
                order.argv,
                order.env,
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(stdio)],
                setsid=True,
                setsigmask=(),
                setsigdef=_CATCHABLE,
            )
    except OSError as error:
        raise LaunchFailed(error.errno or 0) from error
    except ValueError as error:  # what the interpreter itself does not hand on to the kernel
        raise LaunchFailed(errno.EINVAL) from error


def _launch_as(run_as: RunAs, path: str, order: Order, stdio: tuple[int, int, int]) -> int:
    """Fork, become another user and execute: `posix_spawn` cannot change users.

    A plain fork is safe because this process never had a second thread.
    """
    supervisor = os.getpid()
    report_read, report_write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _become(run_as, path, order, stdio, supervisor, report_write)
    os.close(report_write)
    try:
        report = os.read(report_read, _ERRNO_BYTES)
    finally:
        os.close(report_read)
    if report:
        os.waitpid(pid, 0)
        code = int.from_bytes(report, sys.byteorder)
        raise OSError(code, os.strerror(code))
    return pid


def _become(  # noqa: PLR0917 - called once
    run_as: RunAs, path: str, order: Order, stdio: tuple[int, int, int], supervisor: int, report: int
) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        for number, fd in enumerate(stdio):
            os.dup2(fd, number)
        for number in _CATCHABLE:
            with contextlib.suppress(OSError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.setgroups([])
        os.setresgid(run_as.gid, run_as.gid, run_as.gid)
        os.setresuid(run_as.uid, run_as.uid, run_as.uid)
        linux.die_with_parent(signal.SIGKILL)
        if os.getppid() == supervisor:
            os.execve(path, order.argv, order.env)  # noqa: S606 - there is no shell on purpose
    except OSError as error:
        with contextlib.suppress(OSError):
            os.write(report, (error.errno or 0).to_bytes(_ERRNO_BYTES, sys.byteorder))
    finally:
        os._exit(127)
