"""Opening what a run is about, and comparing what was opened with what was decided on.

Nothing is looked up twice: the directory and the ELF program that were checked are the ones that are used, by
descriptor; of a program that others than root can write a sealed copy of what was compared is used. Scripts
and programs that look for their own place are the exception (see the README).
"""

import contextlib
import errno
import hashlib
import os
import stat
from dataclasses import dataclass, field
from typing import Final

from tyrum_local_spawn.supervision import sealed
from tyrum_local_spawn.supervision.order import FileOrder, Order
from tyrum_local_spawn.supervision.record import Refusal

_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HASH_BLOCK: Final = 64 * 1024
_MAX_HASHED: Final = 1 << 30
"""Bytes of the largest file that a kernel decides on: one that is larger now is another."""
_ELF: Final = b"\x7fELF"


class Refused(Exception):
    """The run must not start; nothing has executed.

    Args:
        refusal: the reason that StartProcess answers.
        message: public text without values of environment or stdin.
        field: for `FIELD_INVALID`, the request field.
    """

    def __init__(self, refusal: Refusal, message: str, field: str = "") -> None:
        super().__init__(message)
        self.refusal = refusal
        self.message = message
        self.field = field


@dataclass(slots=True)
class Target:
    """What was opened for a run."""

    directory_fd: int
    program_fd: int
    script: bool
    """True when the program is no ELF file: it is executed by its path."""
    device: int
    inode: int
    fds: list[int] = field(default_factory=list)

    def close(self) -> None:
        """Close everything."""
        _close_all(self.fds)


def _close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


def open_target(order: Order) -> Target:
    """Open and check workspace, working directory, program and operands.

    Raises:
        Refused: one of them is not what was decided on, or cannot be used.
    """
    fds: list[int] = []
    with contextlib.ExitStack() as undo:
        undo.callback(_close_all, fds)
        workspace_fd = _open_workspace(order)
        fds.append(workspace_fd)
        directory_fd = _open_beneath(workspace_fd, order.cwd, fds)
        program_fd, script, status = _open_program(order.program, fds)
        for index, operand in enumerate(order.operands):
            _check_operand(operand, index)
        undo.pop_all()
    return Target(directory_fd, program_fd, script, status.st_dev, status.st_ino, fds)


def _open_workspace(order: Order) -> int:
    try:
        fd = os.open(order.workspace, _DIRECTORY)
    except OSError as error:
        raise Refused(
            Refusal.WORKSPACE_CHANGED, f"the workspace cannot be opened: {os.strerror(error.errno or 0)}"
        ) from error
    status = os.fstat(fd)
    if (status.st_dev, status.st_ino) != (order.device, order.inode):
        os.close(fd)
        raise Refused(
            Refusal.WORKSPACE_CHANGED, "the workspace is another directory than the one that was admitted"
        )
    return fd


def _open_beneath(workspace_fd: int, cwd: str, fds: list[int]) -> int:
    current = workspace_fd
    for name in cwd.split("/") if cwd else ():
        try:
            current = os.open(name, _DIRECTORY, dir_fd=current)
        except OSError as error:
            problem = (
                "leads through a link or something that is no directory"
                if error.errno in (errno.ELOOP, errno.ENOTDIR)
                else f"cannot be opened: {os.strerror(error.errno or 0)}"
            )
            raise Refused(Refusal.FIELD_INVALID, f"`spec.cwd` {problem}", "spec.cwd") from error
        fds.append(current)
    return current


def _open_program(program: FileOrder, fds: list[int]) -> tuple[int, bool, os.stat_result]:
    try:
        fd = os.open(program.path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise _not_executable(f"cannot be opened: {os.strerror(error.errno or 0)}") from error
    fds.append(fd)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise _not_executable("is not a regular file")
    if not status.st_mode & 0o111:
        raise _not_executable("is not executable")
    try:
        # The same inode again, readable: O_NONBLOCK is moot for a regular file.
        readable = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if program.sha256:
            raise _not_executable("cannot be read, so its digest cannot be compared") from error
        return fd, False, status  # execute-only: such a file is no script, an interpreter could not read it
    try:
        script = os.pread(readable, len(_ELF), 0) != _ELF
        if program.sha256:
            copy = None if script or not sealed.writable(status) else sealed.copy_of(readable)
            if copy is not None:
                fds.append(copy.fd)
            if (copy.sha256 if copy else _sha256(readable)) != program.sha256:
                raise Refused(
                    Refusal.PROGRAM_CHANGED, "the program differs from the digest that was decided on"
                )
            fd = copy.fd if copy else fd
    finally:
        os.close(readable)
    return fd, script, status


def _not_executable(problem: str) -> Refused:
    return Refused(Refusal.PROGRAM_NOT_EXECUTABLE, f"the program {problem}")


def _check_operand(operand: FileOrder, index: int) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(operand.path, flags)
    except OSError as error:
        raise Refused(
            Refusal.PROGRAM_CHANGED, f"operand {index} cannot be opened: {os.strerror(error.errno or 0)}"
        ) from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Refused(Refusal.PROGRAM_CHANGED, f"operand {index} is not a regular file")
        if operand.sha256 and _sha256(fd) != operand.sha256:
            raise Refused(
                Refusal.PROGRAM_CHANGED, f"operand {index} differs from the digest that was decided on"
            )
    finally:
        os.close(fd)


def _sha256(fd: int) -> str:
    # Looked at first, and counted because it may grow meanwhile.
    if os.fstat(fd).st_size > _MAX_HASHED:
        return ""
    digest, left = hashlib.sha256(), _MAX_HASHED
    while block := os.read(fd, _HASH_BLOCK):
        digest.update(block)
        left -= len(block)
        if left < 0:
            return ""
    return digest.hexdigest()
