"""The child that becomes the command: forked ahead of time, it waits for its orders, then executes once.

It reports every failure before the command executes, and nothing of the provider reaches the command: exact
environment, three descriptors, default signal dispositions, umask 022, no core files, its own session.
"""

# The spawner and its children do not load pathlib.
# ruff: noqa: PTH116, PTH208

import contextlib
import json
import os
import resource
import signal
import socket
import struct
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from tyrum_local_spawn.supervision import linux
from tyrum_local_spawn.supervision.descriptors import receive_descriptors
from tyrum_local_spawn.supervision.order import Order
from tyrum_local_spawn.supervision.target import Target

UMASK: Final = 0o022
_LENGTH: Final = struct.Struct("!I")
_REPORT: Final = struct.Struct("!ci")
_READY: Final = b"R"
_GO: Final = b"G"
ENTER: Final = b"D"
"""Stage of a failure: entering the working directory as the run's user."""
EXECUTE: Final = b"X"
"""Stage of a failure: executing the program."""
SETUP: Final = b"S"
"""Stage of a failure: anything else before that."""


class LaunchFailed(Exception):
    """The command did not execute and never will."""

    def __init__(self, stage: bytes, code: int) -> None:
        super().__init__(os.strerror(code))
        self.stage = stage
        self.code = code


class LauncherGone(Exception):
    """The waiting child ended before it got its order; another one can be forked."""


class Launcher:
    """The supervisor's side."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _child(theirs, parent)
        theirs.close()
        self._socket = ours
        self.pidfd = os.pidfd_open(self.pid)

    def prepare(self, order: Order, target: Target, stdio: tuple[int, int, int]) -> None:
        """Hand over the order; the child sets itself up and waits. Returns at once.

        Raises:
            LauncherGone: the child is no more.
        """
        body = json.dumps(
            {
                "argv": order.argv,
                "env": dict(order.env),
                "path": order.program.path,
                "script": target.script,
                "device": target.device,
                "inode": target.inode,
                "run_as": None if order.run_as is None else [order.run_as.uid, order.run_as.gid],
            }
        ).encode()
        try:
            socket.send_fds(
                self._socket, [_LENGTH.pack(len(body))], [*stdio, target.directory_fd, target.program_fd]
            )
            self._socket.sendall(body)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise LauncherGone from error

    def await_ready(self) -> None:
        """Wait until the child needs nothing but the word to execute.

        Raises:
            LaunchFailed: it could not set itself up.
            LauncherGone: it ended without a word.
        """
        self._report(_READY)

    def release(self) -> None:
        """Let the command execute, and return when it does.

        Raises:
            LaunchFailed: the program could not be executed.
        """
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.send(_GO)
        try:
            self._report(b"")
        finally:
            self._socket.close()

    def discard(self) -> None:
        """End a child that has not executed."""
        self._socket.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        os.close(self.pidfd)

    def _report(self, expected: bytes) -> None:
        """Read one report; an empty `expected` means the end of file that a successful execution causes."""
        try:
            data = self._socket.recv(_REPORT.size, socket.MSG_WAITALL)
        except ConnectionResetError:
            data = b""
        if data == expected == b"":
            return
        if len(data) < _REPORT.size:
            raise LauncherGone
        stage, code = _REPORT.unpack(data)
        if stage != expected:
            raise LaunchFailed(stage, code)


def _child(channel: socket.socket, supervisor: int) -> NoReturn:
    """Wait for the order and become the command; whatever goes wrong ends this process."""
    stage = SETUP
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        linux.die_with_parent(signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        _close_inherited({0, 1, 2, channel.fileno()})
        _reset_signals()
        os.umask(UMASK)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        received = _receive(channel)
        if received is None:
            os._exit(0)
        order, fds = received
        stdin, stdout, stderr, directory, program = fds
        for number, fd in enumerate((stdin, stdout, stderr)):
            os.dup2(fd, number)
        if order["run_as"] is not None:
            uid, gid = order["run_as"]
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            linux.die_with_parent(signal.SIGKILL)  # cleared by the change of user
            if os.getppid() != supervisor:
                os._exit(1)
        stage = ENTER
        os.fchdir(directory)

        channel.sendall(_REPORT.pack(_READY, 0))
        if channel.recv(1) != _GO:
            os._exit(0)
        stage = EXECUTE
        _execute(order, program)
    except OSError as error:
        with contextlib.suppress(OSError):
            channel.sendall(_REPORT.pack(stage, error.errno or 0))
    finally:
        os._exit(127)


def _receive(channel: socket.socket) -> tuple[Mapping[str, Any], list[int]] | None:
    data, fds = receive_descriptors(channel, _LENGTH.size, 5)
    if not data:
        return None
    data += channel.recv(_LENGTH.size - len(data), socket.MSG_WAITALL) if len(data) < _LENGTH.size else b""
    (length,) = _LENGTH.unpack(data)
    body = bytearray()
    while len(body) < length:
        block = channel.recv(min(length - len(body), 1024 * 1024))
        if not block:
            return None
        body += block
    return json.loads(body), fds


def _execute(order: Mapping[str, Any], program: int) -> NoReturn:
    if order["script"]:
        status = os.stat(order["path"])
        if (status.st_dev, status.st_ino) != (order["device"], order["inode"]):
            raise FileNotFoundError(2, "replaced")
        os.execve(order["path"], order["argv"], order["env"])  # noqa: S606 - there is no shell on purpose
    os.execve(program, order["argv"], order["env"])  # noqa: S606 - there is no shell on purpose


def _close_inherited(keep: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd not in keep:
            with contextlib.suppress(OSError):
                os.close(fd)


def _reset_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
