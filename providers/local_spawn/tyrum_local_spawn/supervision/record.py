"""What a run leaves on disk: the journal before the command may execute, the exit record after it ended.

Every record carries its format, its kind, its lengths and a checksum over all of it; behind it only the zeros
of its preallocated file may follow. A record that does not check is never read as "nothing happened":
`DamagedRecord` makes the provider fail closed.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

JOURNAL: Final = "journal"
EXIT: Final = "exit"
EXIT_PENDING: Final = "exit.pending"
"""Where the exit record is written before it gets its name; complete and checked, it counts as the record."""
TOMBSTONE: Final = "tombstone"
STREAMS: Final = ("stdout", "stderr")

EVIDENCE_BYTES: Final = 128 * 1024
"""Bytes of the head, and of the tail, that the exit record keeps of each stream."""

_MAGIC: Final = b"tyrum-local-spawn/1 "
_CHECKSUM_BYTES: Final = 32


class DamagedRecord(Exception):
    """A record is truncated, altered, or of an unknown format."""


class Cause(StrEnum):
    """Why a run ended; the names are those of `EndCause`."""

    EXITED = "EXITED"
    SIGNALED = "SIGNALED"
    WALL_TIME = "WALL_TIME"
    OUTPUT_LIMIT = "OUTPUT_LIMIT"
    CANCELLED = "CANCELLED"
    PROVIDER_GONE = "PROVIDER_GONE"
    START_FAILED = "START_FAILED"
    LOST = "LOST"


class Refusal(StrEnum):
    """Why nothing was started; the names are registered error reasons."""

    FIELD_INVALID = "FIELD_INVALID"
    REQUEST_ID_REUSED = "REQUEST_ID_REUSED"
    WORKSPACE_CHANGED = "WORKSPACE_CHANGED"
    PROGRAM_CHANGED = "PROGRAM_CHANGED"
    PROGRAM_NOT_EXECUTABLE = "PROGRAM_NOT_EXECUTABLE"
    QUOTA = "QUOTA"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True)
class Journal:
    """The durable proof that an operation began."""

    operation_id: str
    process_id: str
    spec_digest: str
    """Keyed digest of the request; without the key nothing about its content can be tested."""
    boot_id: str
    supervisor_pid: int
    run_uid: int
    spool_bytes: int
    """Cap of each stream's spool."""
    recorded_at_ns: int
    """Nanoseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """One output stream of an ended run."""

    total_bytes: int
    sha256: str
    head: bytes
    tail: bytes
    stored_bytes: int
    """End of what the spool holds; smaller than the total only when writing the spool failed."""
    spool_bytes: int
    """Cap of the spool, which fixes its layout."""
    dropped_bytes: int


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How a run ended."""

    cause: Cause
    exit_code: int | None
    signal: int | None
    started_at_ns: int
    ended_at_ns: int
    duration_ns: int
    stdout: StreamEnd
    stderr: StreamEnd
    tree_empty: bool
    descendants_killed: bool = False
    """Whether something outlived a command that ended by itself, and was killed."""
    refusal: Refusal | None = None
    """For `START_FAILED`: what StartProcess answered."""
    detail: str = ""

    @property
    def spooled_bytes(self) -> int:
        """Disk space that the spools take."""
        return sum(min(stream.stored_bytes, stream.spool_bytes) for stream in (self.stdout, self.stderr))

    def without_evidence(self) -> "ExitRecord":
        """Return it without the bytes of both streams; totals and digests stay."""
        return replace(
            self,
            stdout=replace(self.stdout, head=b"", tail=b""),
            stderr=replace(self.stderr, head=b"", tail=b""),
        )


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The durable promise that an operation which has not begun never will."""

    operation_id: str
    recorded_at_ns: int


NO_OUTPUT: Final = StreamEnd(0, hashlib.sha256().hexdigest(), b"", b"", 0, 0, 0)


def encode_journal(journal: Journal) -> bytes:
    """Return the bytes of a journal record."""
    return _seal(
        JOURNAL,
        {
            "operation_id": journal.operation_id,
            "process_id": journal.process_id,
            "spec_digest": journal.spec_digest,
            "boot_id": journal.boot_id,
            "supervisor_pid": journal.supervisor_pid,
            "run_uid": journal.run_uid,
            "spool_bytes": journal.spool_bytes,
            "recorded_at_ns": journal.recorded_at_ns,
        },
    )


def decode_journal(data: bytes) -> Journal:
    """Read a journal record.

    Raises:
        DamagedRecord: it does not check.
    """
    head, _ = _unseal(JOURNAL, data)
    try:
        return Journal(**head)
    except TypeError as error:
        raise DamagedRecord("the journal lacks a field") from error


def encode_tombstone(tombstone: Tombstone) -> bytes:
    """Return the bytes of a tombstone."""
    return _seal(
        TOMBSTONE,
        {"operation_id": tombstone.operation_id, "recorded_at_ns": tombstone.recorded_at_ns},
    )


def decode_tombstone(data: bytes) -> Tombstone:
    """Read a tombstone.

    Raises:
        DamagedRecord: it does not check.
    """
    head, _ = _unseal(TOMBSTONE, data)
    try:
        return Tombstone(**head)
    except TypeError as error:
        raise DamagedRecord("the tombstone lacks a field") from error


def encode_exit(record: ExitRecord) -> bytes:
    """Return the bytes of an exit record, evidence included."""
    head = {
        "cause": record.cause,
        "exit_code": record.exit_code,
        "signal": record.signal,
        "started_at_ns": record.started_at_ns,
        "ended_at_ns": record.ended_at_ns,
        "duration_ns": record.duration_ns,
        "tree_empty": record.tree_empty,
        "descendants_killed": record.descendants_killed,
        "refusal": record.refusal,
        "detail": record.detail,
        "stdout": _stream_head(record.stdout),
        "stderr": _stream_head(record.stderr),
    }
    blob = record.stdout.head + record.stdout.tail + record.stderr.head + record.stderr.tail
    return _seal(EXIT, head, blob)


def decode_exit(data: bytes) -> ExitRecord:
    """Read an exit record.

    Raises:
        DamagedRecord: it does not check.
    """
    head, blob = _unseal(EXIT, data)
    try:
        stdout, rest = _stream(head["stdout"], blob)
        stderr, rest = _stream(head["stderr"], rest)
        return ExitRecord(
            cause=Cause(head["cause"]),
            exit_code=head["exit_code"],
            signal=head["signal"],
            started_at_ns=head["started_at_ns"],
            ended_at_ns=head["ended_at_ns"],
            duration_ns=head["duration_ns"],
            stdout=stdout,
            stderr=stderr,
            tree_empty=head["tree_empty"],
            descendants_killed=head.get("descendants_killed", False),  # a record of an earlier build lacks it
            refusal=None if head["refusal"] is None else Refusal(head["refusal"]),
            detail=head["detail"],
        )
    except (KeyError, ValueError, TypeError) as error:
        raise DamagedRecord("the exit record lacks a field") from error


def _stream_head(stream: StreamEnd) -> Mapping[str, object]:
    return {
        "total_bytes": stream.total_bytes,
        "sha256": stream.sha256,
        "head": len(stream.head),
        "tail": len(stream.tail),
        "stored_bytes": stream.stored_bytes,
        "spool_bytes": stream.spool_bytes,
        "dropped_bytes": stream.dropped_bytes,
    }


def _stream(head: Mapping[str, Any], blob: bytes) -> tuple[StreamEnd, bytes]:
    first, last = head["head"], head["head"] + head["tail"]
    stream = StreamEnd(
        total_bytes=head["total_bytes"],
        sha256=head["sha256"],
        head=blob[:first],
        tail=blob[first:last],
        stored_bytes=head["stored_bytes"],
        spool_bytes=head["spool_bytes"],
        dropped_bytes=head["dropped_bytes"],
    )
    return stream, blob[last:]


def _seal(kind: str, head: Mapping[str, object], blob: bytes = b"") -> bytes:
    text = json.dumps(head, separators=(",", ":")).encode()
    body = _MAGIC + f"{kind} {len(text)} {len(blob)}\n".encode() + text + blob
    return body + hashlib.sha256(body).digest()


def _unseal(kind: str, data: bytes) -> tuple[dict[str, Any], bytes]:
    title = data.partition(b"\n")[0]
    if not title.startswith(_MAGIC + kind.encode() + b" "):
        raise DamagedRecord(f"the {kind} record has an unknown format")
    try:
        begin = len(title) + 1
        text_bytes, blob_bytes = map(int, title.split(b" ")[2:])
        text_end, end = begin + text_bytes, begin + text_bytes + blob_bytes
        if hashlib.sha256(data[:end]).digest() != data[end : end + _CHECKSUM_BYTES]:
            raise DamagedRecord(f"the {kind} record does not match its checksum")
        if data[end + _CHECKSUM_BYTES :].strip(b"\0"):
            raise DamagedRecord(f"the {kind} record is followed by something else")
        head, blob = json.loads(data[begin:text_end]), data[text_end:end]
    except ValueError as error:
        raise DamagedRecord(f"the {kind} record is not readable") from error
    if not isinstance(head, dict):
        raise DamagedRecord(f"the {kind} record is not an object")
    return head, blob
