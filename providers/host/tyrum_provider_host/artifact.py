"""The digest of what a provider's command executes, and proof that it did not change while it started.

What the digest covers is part of the result, because it differs: for a console script of this distribution
(and `python -m MODULE` under this interpreter) it is a manifest of the script and of every file of the
packages that run in it; for every other command it is the program file, together with each later argument
that is the absolute path of a regular file (a script given to an interpreter). Libraries that an interpreter
or loader picks up elsewhere are not covered.
"""

import importlib.metadata
import importlib.util
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Literal

from tyrum_provider_host.rejection import SHORTAGES

_DISTRIBUTION = "tyrum"
_SHARED_PACKAGES = ("tyrum", "tyrum_provider_kit")
_PYTHON_SUFFIXES = frozenset({".py", ".so"})
_ELF_MACHINES = {3: "i386", 40: "arm", 62: "x86-64", 183: "aarch64", 243: "riscv"}


class ArtifactError(Exception):
    """The program cannot be read or executed; the message names the file and what is wrong with it."""

    def __init__(self, message: str, cause: OSError | None = None) -> None:
        super().__init__(message)
        self.passing = cause is not None and cause.errno in SHORTAGES


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """A file as it was when it was hashed."""

    path: str
    device: int
    inode: int
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Artifact:
    """Digest of a command, and what it covers."""

    digest: str
    """`sha256:` and 64 hexadecimal digits."""
    coverage: str
    files: tuple[FileIdentity, ...]

    def changed(self) -> str | None:
        """Name the first covered file that is no longer the one that was hashed; None when all are."""
        for file in self.files:
            try:
                status = Path(file.path).stat()
            except OSError:
                return file.path
            if _identity(file.path, status) != file:
                return file.path
        return None


def measure(command: tuple[str, ...]) -> Artifact:
    """Hash what `command` executes. Blocking.

    Raises:
        ArtifactError: a covered file is missing, unreadable, not a regular file or not executable.
    """
    program = Path(command[0])
    _executable(program)
    packages = _python_packages(command)
    operands = (
        []
        if packages
        else [
            Path(argument)
            for argument in command[1:]
            if argument.startswith("/") and Path(argument).is_file()
        ]
    )
    members = [(program.name, program), *((path.name, path) for path in operands)]
    for package in packages:
        members.extend(_package_files(package))
    lines, files = [], []
    for label, path in members:
        hexdigest, identity = _hash(path)
        files.append(identity)
        lines.append(f"{hexdigest} {label}\n")
    if len(lines) == 1:
        return Artifact(f"sha256:{lines[0][:64]}", f"the file {program}", tuple(files))
    digest = sha256("".join(lines).encode()).hexdigest()
    covered = f"a manifest of {len(lines)} files: {program}"
    if packages:
        covered += " and the packages " + ", ".join(packages)
    else:
        covered += ", " + ", ".join(map(str, operands))
    return Artifact(f"sha256:{digest}", covered, tuple(files))


def describe(path: Path) -> str:
    """Describe a program file for a message: mode, owner and processor architecture."""
    try:
        status = path.stat()
        with path.open("rb") as file:
            header = file.read(20)
    except OSError as error:
        return error.strerror or type(error).__name__
    facts = f"mode {stat.S_IMODE(status.st_mode):04o}, owner uid {status.st_uid}"
    if header[:4] == b"\x7fELF" and len(header) == 20:
        order: Literal["little", "big"] = "little" if header[5] == 1 else "big"
        machine = int.from_bytes(header[18:20], order)
        built_for = _ELF_MACHINES.get(machine, f"machine {machine}")
        return f"{facts}, ELF for {built_for}, host is {os.uname().machine}"
    return f"{facts}, {'script' if header[:2] == b'#!' else 'neither ELF nor a script'}"


def _executable(path: Path) -> None:
    try:
        status = path.stat()
    except OSError as error:
        raise ArtifactError(f"the program {path} cannot be read: {error.strerror}", error) from None
    if not stat.S_ISREG(status.st_mode):
        raise ArtifactError(f"the program {path} is not a regular file")
    if not os.access(path, os.X_OK):
        raise ArtifactError(f"the program {path} is not executable ({describe(path)})")


def _hash(path: Path) -> tuple[str, FileIdentity]:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ArtifactError(f"{path} is not a regular file")
            return file_digest(file, "sha256").hexdigest(), _identity(os.fspath(path), status)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}", error) from None


def _identity(path: str, status: os.stat_result) -> FileIdentity:
    return FileIdentity(path, status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)


def _python_packages(command: tuple[str, ...]) -> tuple[str, ...]:
    program = Path(command[0])
    if program.parent != Path(sys.executable).parent:
        return ()
    if program.name.startswith("python"):
        if len(command) < 3 or command[1] != "-m":
            return ()
        module = command[2]
    else:
        entry_points = importlib.metadata.distribution(_DISTRIBUTION).entry_points
        scripts = entry_points.select(group="console_scripts", name=program.name)
        if not scripts:
            return ()
        module = next(iter(scripts)).module
    package = module.partition(".")[0]
    return tuple(dict.fromkeys((package, *_SHARED_PACKAGES)))


def _package_files(package: str) -> Iterator[tuple[str, Path]]:
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ArtifactError(f"the Python package {package} is not installed")
    roots = sorted(spec.submodule_search_locations or ())
    if not roots and spec.origin is not None:
        yield Path(spec.origin).name, Path(spec.origin)
    for root in roots:
        for path in sorted(Path(root).rglob("*")):
            if path.suffix in _PYTHON_SUFFIXES and path.is_file():
                yield f"{package}/{path.relative_to(root).as_posix()}", path
