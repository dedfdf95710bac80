"""Finding programs: the kernel resolves what will run, in the operator's directories.

Invariant: the result is the real path of an executable regular file, with the digest of its content; the
call's environment has no part in it.
"""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from tyrum_gateway.tools import walking
from tyrum_gateway.tools.digests import Content, Digests
from tyrum_gateway.tools.strict_json import ArgumentProblem, shown

MAX_PROGRAM_BYTES = 1 << 30
_SHEBANG_BYTES = 256
"""What Linux looks at."""
_ELF = b"\x7fELF"
_WORD_END = re.compile(rb"[ \t\0]")


@dataclass(frozen=True, slots=True)
class Program:
    """A resolved program whose content was not read yet."""

    path: str
    status: os.stat_result


@dataclass(frozen=True, slots=True)
class SearchPath:
    """The operator's directories, in order."""

    directories: tuple[str, ...]

    def joined(self) -> str:
        """Write it as PATH."""
        return ":".join(self.directories)

    def find(self, name: str) -> Program | None:
        """Look for a program by its plain name."""
        for directory in self.directories:
            program = executable(os.path.join(directory, name))  # noqa: PTH118 - text all the way
            if program is not None:
                return program
        return None


def resolve(argv0: str, search: SearchPath, workspace: str, cwd: str) -> Program:
    """Find what `argv[0]` names.

    Args:
        argv0: A plain name, an absolute path, or a path with `/` relative to the working directory.
        search: Where plain names are looked for.
        workspace: Absolute path of the workspace.
        cwd: Checked directory relative to it.

    Raises:
        ArgumentProblem: There is no such program, or a relative path leaves the workspace.
    """
    if argv0 in {".", ".."}:
        raise ArgumentProblem(f"`argv[0]`: `{argv0}` is a directory")
    if "/" not in argv0:
        program = search.find(argv0)
        if program is None:
            where = search.joined()
            raise ArgumentProblem(f"`argv[0]`: no program `{shown(argv0)}` in {where}")
        return program
    path = argv0
    if not argv0.startswith("/"):
        inside = os.path.normpath(f"{cwd}/{argv0}")
        if inside == ".." or inside.startswith("../"):
            raise ArgumentProblem(
                f"`argv[0]`: `{shown(argv0)}` lies outside the workspace; use an absolute path"
            )
        path = f"{workspace}/{cwd}/{argv0}"
    program = executable(path)
    if program is None:
        raise ArgumentProblem(f"`argv[0]`: `{shown(argv0)}` is no executable file")
    return program


def find_shell(search: SearchPath) -> Program:
    """Find bash for shell text.

    Raises:
        ArgumentProblem: The operator's directories hold none.
    """
    program = search.find("bash")
    if program is None:
        raise ArgumentProblem(f"`shell`: there is no bash in {search.joined()}; use `argv`")
    return program


def executable(path: str) -> Program | None:
    """Resolve links and return the file when it is regular and executable."""
    try:
        real, status = walking.resolved(path)
        size = len(real.encode())
    except (OSError, ValueError):  # also where the real path is no text
        return None
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & 0o111 or size > 4096:
        return None
    return Program(real, status)


def interpreter(program: Program) -> str | None:
    """Return the path in the first line of a script, as Linux reads it; None for any other program."""
    head = _head(program)
    if not head.startswith(b"#!"):
        return None
    line = head[2:].partition(b"\n")[0].strip(b" \t")
    return os.fsdecode(_WORD_END.split(line, 1)[0]) or None


def is_elf(program: Program) -> bool:
    """Tell whether Linux executes the file by itself."""
    return _head(program).startswith(_ELF)


def _head(program: Program) -> bytes:
    walking.look()
    try:
        descriptor = os.open(program.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return os.pread(descriptor, _SHEBANG_BYTES, 0)
        finally:
            os.close(descriptor)
    except OSError:
        return b""


def content(program: Program, digests: Digests) -> Content:
    """Return the program's content; blocks while a new one is read.

    Raises:
        ArgumentProblem: It cannot be read, is too large, or was replaced meanwhile.
    """
    walking.look()
    try:
        descriptor = os.open(program.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise ArgumentProblem(f"`argv[0]`: {shown(program.path)} cannot be read: {error.strerror}") from None
    try:
        value = digests.compute(descriptor, MAX_PROGRAM_BYTES)
    except OSError as error:
        raise ArgumentProblem(f"`argv[0]`: {shown(program.path)} cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if value is None:
        raise ArgumentProblem(f"`argv[0]`: {shown(Path(program.path).name)} changes or is larger than 1 GiB")
    return value
