"""What the kernel and an isolation provider tell each other, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from tyrum_provider_host.spec import Secret


@dataclass(frozen=True, slots=True)
class OperationContext:
    """The decision under which the kernel calls; the provider logs it and never authorises by it."""

    binding_id: str
    provider_id: str
    profile: str
    contract_major: int
    actor: str
    traceparent: str = ""
    journal_id: str = ""
    """Journal of the provider when the operation was bound; empty when the binding names none."""


@dataclass(frozen=True, slots=True)
class FileReference:
    """A file by absolute path, and optionally the hexadecimal sha256 its content must have."""

    path: str
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A directory by path and identity."""

    path: str
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Bounds of one run."""

    wall_time: timedelta
    output_bytes: int
    kill_grace: timedelta


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """Exactly what runs; nothing is expanded, split or looked up by the provider."""

    program: FileReference
    argv: tuple[str, ...]
    workspace: Workspace
    limits: ProcessLimits
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    secret_env: Mapping[str, Secret] = field(default_factory=lambda: MappingProxyType({}))
    cwd: str = ""
    stdin: bytes = b""
    operands: tuple[FileReference, ...] = ()
    required_claims: tuple[str, ...] = ()
    durable: bool = False


class ProcessState(StrEnum):
    """State of a run."""

    RUNNING = "running"
    ENDED = "ended"


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


class OutputStream(StrEnum):
    """An output stream of a process."""

    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """Bounded evidence of one output stream; `head` and `tail` hold at most 128 KiB each."""

    total_bytes: int
    sha256: str
    head: bytes
    tail: bytes
    dropped_bytes: int


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """How a run ended. Exit code and signal are absent when the end was not seen."""

    cause: EndCause
    exit_code: int | None
    signal: int | None
    ended_at: datetime
    duration: timedelta
    stdout: StreamSummary
    stderr: StreamSummary
    tree_empty: bool
    descendants_killed: bool = False
    """Whether what the command had left in the background was killed after its own end."""


@dataclass(frozen=True, slots=True)
class Process:
    """One run; `result` is present exactly when it has ended."""

    process_id: str
    operation_id: str
    state: ProcessState
    handle: bytes
    handle_version: int
    started_at: datetime
    result: ProcessResult | None


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """A journal's word that an operation did not begin and never will; of one bound under it, proof."""

    recorded_at: datetime
    journal_id: str


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """Consecutive bytes of a stream from an absolute offset."""

    offset: int
    data: bytes
    dropped_before: int
    eof: bool


@dataclass(frozen=True, slots=True)
class ProcessPage:
    """One page of processes; `next_page_token` is empty on the last one."""

    processes: tuple[Process, ...]
    next_page_token: str


class ClaimStatus(StrEnum):
    """What is known about a claim."""

    PROVED = "PROVED"
    UNPROVED = "UNPROVED"
    UNAVAILABLE = "UNAVAILABLE"
    NOT_ENFORCED = "NOT_ENFORCED"


@dataclass(frozen=True, slots=True)
class Claim:
    """One property of the boundary."""

    name: str
    status: ClaimStatus
    mechanism: str


@dataclass(frozen=True, slots=True)
class Posture:
    """What an isolation provider says about its boundary."""

    claims: tuple[Claim, ...]
    run_uid: int
    shares_gateway_user: bool
    notes: tuple[str, ...]
