"""Processes as the kernel sees them: what to run, and how a run ended.

Cause, exit code and signal are separate facts; whether a command ran is never guessed from a status.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class EndCause(StrEnum):
    """Why a run ended; the first cause wins."""

    EXITED = "exited"
    SIGNALED = "signaled"
    WALL_TIME = "wall_time"
    OUTPUT_LIMIT = "output_limit"
    CANCELLED = "cancelled"
    PROVIDER_GONE = "provider_gone"
    START_FAILED = "start_failed"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """A file and the content it must have."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class WorkspaceIdentity:
    """A directory that is recognised even when its path is swapped."""

    path: str
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Bounds of one run."""

    wall_time: timedelta
    output_bytes: int
    kill_grace: timedelta


@dataclass(frozen=True, slots=True)
class ProcessRun:
    """Exactly what runs. Secret values are not part of it: they are projected at the call."""

    program: FileIdentity
    argv: tuple[str, ...]
    env: Mapping[str, str]
    workspace: WorkspaceIdentity
    cwd: str
    stdin: bytes
    operands: tuple[FileIdentity, ...]
    limits: RunLimits
    required_claims: tuple[str, ...]
    secrets: tuple[str, ...] = ()
    """Names of secrets to project as environment variables of the same name."""


@dataclass(frozen=True, slots=True)
class StreamEvidence:
    """Bounded evidence of one output stream."""

    total_bytes: int
    sha256: str
    head: bytes
    """First bytes, at most 128 KiB."""
    tail: bytes
    """Last bytes after the head, at most 128 KiB."""


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """How a run ended."""

    cause: EndCause
    exit_code: int | None
    signal: int | None
    duration: timedelta
    stdout: StreamEvidence
    stderr: StreamEvidence
    descendants_killed: bool = False
    """Whether what the command had left in the background was killed after its own end."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The command executed and its end is on record."""

    result: ProcessResult


@dataclass(frozen=True, slots=True)
class Refused:
    """Proof that the command did not execute and never will under this operation."""

    reason: str
    """Wire reason, such as `PROGRAM_CHANGED`."""
    message: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can tell whether or how far the command executed."""

    message: str
    passing: bool = False
    """Whether asking again soon may tell: the provider went away while it was asked."""
