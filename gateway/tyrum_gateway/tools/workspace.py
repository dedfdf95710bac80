"""The agent's workspace: one directory by path and identity, and what a call may name inside it.

Invariants: nothing is opened through a link, and nothing outside is ever opened; a directory that was put
in the workspace's place is noticed; a file that a call names and whose content cannot be fixed is told.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tyrum_gateway.domain.process import FileIdentity, WorkspaceIdentity
from tyrum_gateway.tools import walking
from tyrum_gateway.tools.digests import Digests
from tyrum_gateway.tools.operand_names import names_in
from tyrum_gateway.tools.strict_json import ArgumentProblem, shown

MAX_OPERANDS = 32
MAX_OPERAND_BYTES = 8 * 1024 * 1024
MAX_PATH_BYTES = 4096
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OWN_DESCRIPTOR = re.compile(r"/proc/\d+/(task/\d+/)?fd/")
"""What a command has open itself, such as its standard input, which a question shows by itself."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A regular file or a named pipe that an argument names."""

    path: str
    """Absolute, without links where it is fixed."""
    relative: str | None
    """Beneath the workspace; None for a file that is elsewhere or cannot be fixed, which is never opened."""
    status: os.stat_result


@dataclass(frozen=True, slots=True)
class Operands:
    """Files that a call names, with the content they have now."""

    fixed: tuple[FileIdentity, ...]
    """Checked again when the call runs."""
    open: tuple[str, ...]
    """Paths whose content is not fixed: they are elsewhere, too large, too many or cannot be read."""


def prepare_workspace(path: Path) -> WorkspaceIdentity:
    """Create the directory with mode 0700 unless it exists, and take its identity.

    The path may pass links, the result does not.

    Raises:
        OSError: It cannot be created, or is no directory.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    real = os.path.realpath(path, strict=True)
    descriptor = os.open(real, _DIRECTORY)
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return WorkspaceIdentity(real, status.st_dev, status.st_ino)


def checked_cwd(workspace: WorkspaceIdentity, cwd: str) -> str:
    """Check a working directory and return it relative to the workspace, `.` for the workspace itself.

    Raises:
        ArgumentProblem: It leaves the workspace, does not exist or passes a link; the workspace was replaced.
    """
    relative = cwd
    if cwd.startswith("/"):
        root = workspace.path.rstrip("/") + "/"
        if not f"{cwd.rstrip('/')}/".startswith(root):
            raise ArgumentProblem("`cwd` must lie inside the workspace")
        relative = cwd[len(root) :]
    parts = [part for part in relative.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise ArgumentProblem("`cwd` must not contain `..`")
    checked = "/".join(parts) or "."
    with _opened_root(workspace) as opened, _opened_cwd(opened, checked):
        return checked


def find_operands(workspace: WorkspaceIdentity, cwd: str, arguments: Sequence[str]) -> tuple[Operand, ...]:
    """Find the files that arguments name, in order, each once; one behind a link is the file itself.

    Raises:
        ArgumentProblem: The workspace was replaced, or the working directory is gone; not always noticed.
    """
    start = os.path.normpath(os.path.join(workspace.path, cwd))  # noqa: PTH118 - text all the way
    names = dict.fromkeys(name for argument in arguments for name in names_in(argument))
    operands = (_operand(workspace, cwd, start, name) for name in names)
    return tuple({operand.path: operand for operand in operands if operand is not None}.values())


def _operand(workspace: WorkspaceIdentity, cwd: str, start: str, name: str) -> Operand | None:
    """Follow a name as the command would; what is found is only looked at, because opening may wait or wake.

    A file whose path is no text or too long to be handed on counts as one that is elsewhere, and so does a
    named pipe.
    """
    if len(os.fsencode(name)) > MAX_PATH_BYTES:
        return None
    path = os.path.join(start, name)  # noqa: PTH118 - text all the way
    place, seen, magic, own = "", None, False, False
    for place, seen in walking.places(name, start):
        magic = magic or place == "/proc"
        own = own or place in {"/proc/self", "/proc/thread-self"}
        if own and _OWN_DESCRIPTOR.match(place):
            return None
        if isinstance(seen, FileNotFoundError):
            if magic:  # its links lead to files that have no name any more as well
                break
            return None
        if own and place.endswith("/cwd") and place.startswith(f"/proc/{os.getpid()}/"):
            # To the command it leads to its own directory, here to the kernel's.
            return Operand(_text(path), None, walking.lstat(place))
    if not isinstance(seen, os.stat_result) or stat.S_ISLNK(seen.st_mode):
        place, seen = path, _from_inside(workspace, cwd, name)
    if seen is None or not (stat.S_ISREG(seen.st_mode) or stat.S_ISFIFO(seen.st_mode)):
        return None
    beneath, text = workspace.path.rstrip("/") + "/", _text(place)
    fixable = (
        stat.S_ISREG(seen.st_mode)
        and text == place
        and place.startswith(beneath)
        and len(place.encode()) <= MAX_PATH_BYTES
    )
    return Operand(text, place[len(beneath) :] if fixable else None, seen)


def _from_inside(workspace: WorkspaceIdentity, cwd: str, name: str) -> os.stat_result | None:
    """Ask Linux itself, from the working directory: a path from the root may be too long."""
    with _opened_root(workspace) as root, _opened_cwd(root, cwd) as directory:
        walking.look(1 + name.count("/"))
        try:
            return os.stat(name, dir_fd=directory)
        except (OSError, ValueError):
            return None


def _text(path: str) -> str:
    return os.fsencode(path).decode(errors="backslashreplace")


def digest_operands(
    workspace: WorkspaceIdentity,
    operands: Sequence[Operand],
    digests: Digests,
    *,
    most: int = MAX_OPERANDS,
) -> Operands:
    """Fix the content of at most `most` files; blocks while new ones are read.

    Raises:
        ArgumentProblem: The workspace was replaced.
    """
    fixed, left_open = [], []
    with _opened_root(workspace) as root:
        for index, operand in enumerate(operands):
            value = None
            if index < most and operand.relative is not None:
                try:
                    with _opened_file(root, operand.relative) as descriptor:
                        value = digests.compute(descriptor, MAX_OPERAND_BYTES)
                except OSError:
                    value = None
            if value is None:
                left_open.append(operand.path)
            else:
                fixed.append(FileIdentity(operand.path, value.sha256))
    return Operands(tuple(fixed), tuple(left_open))


@contextmanager
def _opened_root(workspace: WorkspaceIdentity) -> Iterator[int]:
    walking.look()
    try:
        descriptor = os.open(workspace.path, _DIRECTORY)
    except OSError as error:
        raise ArgumentProblem(f"the workspace cannot be opened: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != (workspace.device, workspace.inode):
            raise ArgumentProblem("the workspace is another directory than at the gateway's start")
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _opened_cwd(root: int, cwd: str) -> Iterator[int]:
    try:
        descriptor = _walk(root, cwd.split("/"))
    except OSError as error:
        raise ArgumentProblem(
            f"`cwd`: `{shown(cwd)}` is no link-free directory of the workspace ({error.strerror})"
        ) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _opened_file(root: int, relative: str) -> Iterator[int]:
    *parents, name = relative.split("/")
    with _opened_directory(root, *parents) as directory:
        walking.look()
        descriptor = os.open(name, _FILE, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _opened_directory(root: int, *parts: str) -> Iterator[int]:
    """Open a directory that no link leads to."""
    directory = _walk(root, parts)
    try:
        yield directory
    finally:
        os.close(directory)


def _walk(root: int, parts: Sequence[str]) -> int:
    descriptor = os.dup(root)
    try:
        for part in parts:
            walking.look()
            following = os.open(part, _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = following
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
