"""Between isolation messages and plain values (wire edge).

Invariant: an answer with a missing REQUIRED field, an unknown enum value or a broken limit never becomes a
value; it raises `ContractViolation` naming the field.
"""

import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tyrum.isolation.v1 import isolation_pb2
from tyrum.provider.v1 import binding_pb2
from tyrum_provider_host.control_client import ContractViolation
from tyrum_provider_host.errors import MAX_TEXT
from tyrum_provider_host.isolation_types import (
    Claim,
    ClaimStatus,
    EndCause,
    FileReference,
    NeverStarted,
    OperationContext,
    OutputChunk,
    OutputStream,
    Posture,
    Process,
    ProcessResult,
    ProcessSpec,
    ProcessState,
    StreamSummary,
)
from tyrum_provider_host.logs import sanitise

MAX_CHUNK_BYTES = 256 * 1024
MAX_EVIDENCE_BYTES = 128 * 1024
MAX_HANDLE_BYTES = 4 * 1024
MAX_CLAIMS = 256
MAX_NOTES = 16
MAX_EXIT_CODE = 255
MAX_SIGNAL = 64
MAX_TOTAL_BYTES = 2**63 - 1
"""What a store can hold as a number; eight exbibytes are no honest total."""

_SHA256 = re.compile(r"[0-9a-f]{64}")

_STATES = {
    isolation_pb2.PROCESS_STATE_RUNNING: ProcessState.RUNNING,
    isolation_pb2.PROCESS_STATE_ENDED: ProcessState.ENDED,
}
_CAUSES = {
    isolation_pb2.END_CAUSE_EXITED: EndCause.EXITED,
    isolation_pb2.END_CAUSE_SIGNALED: EndCause.SIGNALED,
    isolation_pb2.END_CAUSE_WALL_TIME: EndCause.WALL_TIME,
    isolation_pb2.END_CAUSE_OUTPUT_LIMIT: EndCause.OUTPUT_LIMIT,
    isolation_pb2.END_CAUSE_CANCELLED: EndCause.CANCELLED,
    isolation_pb2.END_CAUSE_PROVIDER_GONE: EndCause.PROVIDER_GONE,
    isolation_pb2.END_CAUSE_START_FAILED: EndCause.START_FAILED,
    isolation_pb2.END_CAUSE_LOST: EndCause.LOST,
}
_CLAIM_STATUSES = {
    isolation_pb2.CLAIM_STATUS_PROVED: ClaimStatus.PROVED,
    isolation_pb2.CLAIM_STATUS_UNPROVED: ClaimStatus.UNPROVED,
    isolation_pb2.CLAIM_STATUS_UNAVAILABLE: ClaimStatus.UNAVAILABLE,
    isolation_pb2.CLAIM_STATUS_NOT_ENFORCED: ClaimStatus.NOT_ENFORCED,
}
_STREAMS = {
    OutputStream.STDOUT: isolation_pb2.OUTPUT_STREAM_STDOUT,
    OutputStream.STDERR: isolation_pb2.OUTPUT_STREAM_STDERR,
}


def context_message(context: OperationContext) -> binding_pb2.OperationContext:
    """Build the context that every domain call carries."""
    return binding_pb2.OperationContext(
        binding=binding_pb2.Binding(
            binding_id=context.binding_id,
            provider_id=context.provider_id,
            profile=context.profile,
            contract_major=context.contract_major,
            journal_id=context.journal_id,
        ),
        actor=context.actor,
        traceparent=context.traceparent,
    )


def spec_message(spec: ProcessSpec) -> isolation_pb2.ProcessSpec:
    """Build the specification; this is the one place that reveals secret environment variables."""
    return isolation_pb2.ProcessSpec(
        program=_file_message(spec.program),
        argv=spec.argv,
        env=spec.env,
        secret_env={name: secret.reveal() for name, secret in spec.secret_env.items()},
        workspace=isolation_pb2.Workspace(
            path=spec.workspace.path, device=spec.workspace.device, inode=spec.workspace.inode
        ),
        cwd=spec.cwd,
        stdin=spec.stdin,
        operands=[_file_message(operand) for operand in spec.operands],
        limits=isolation_pb2.ProcessLimits(
            wall_time=duration_message(spec.limits.wall_time),
            output_bytes=spec.limits.output_bytes,
            kill_grace=duration_message(spec.limits.kill_grace),
        ),
        required_claims=spec.required_claims,
        durable=spec.durable,
    )


def stream_value(stream: OutputStream) -> isolation_pb2.OutputStream.ValueType:
    """Name the stream on the wire."""
    return _STREAMS[stream]


def duration_message(value: timedelta) -> Duration:
    """Convert a duration exactly."""
    message = Duration()
    message.FromTimedelta(value)
    return message


def process(message: isolation_pb2.Process) -> Process:
    """Check and convert a process.

    Raises:
        ContractViolation: a field is missing or breaks its limits.
    """
    state = _STATES.get(message.state)
    if state is None:
        raise ContractViolation("`process.state` is missing or unknown")
    ended = message.HasField("result")
    if ended != (state is ProcessState.ENDED):
        raise ContractViolation("`process.result` must be present exactly when the state is ENDED")
    if not 0 < len(message.handle) <= MAX_HANDLE_BYTES:
        raise ContractViolation(
            f"`process.handle` has {len(message.handle)} bytes, 1 to {MAX_HANDLE_BYTES} are allowed"
        )
    if not message.handle_version:
        raise ContractViolation("`process.handle_version` is missing")
    started_at = timestamp(message, "started_at")
    result = _result(message.result) if ended else None
    if result is not None and result.ended_at < started_at:
        raise ContractViolation("`result.ended_at` is before `started_at`")
    return Process(
        process_id=sanitise(message.process_id, 64),
        operation_id=sanitise(message.operation_id, 64),
        state=state,
        handle=message.handle,
        handle_version=message.handle_version,
        started_at=started_at,
        result=result,
    )


def never_started(message: isolation_pb2.NeverStarted) -> NeverStarted:
    """Check and convert a journal's denial.

    Raises:
        ContractViolation: a field is missing.
    """
    if not message.journal_id:
        raise ContractViolation("`never_started.journal_id` is missing")
    return NeverStarted(timestamp(message, "recorded_at"), sanitise(message.journal_id, 64))


def chunk(message: isolation_pb2.ReadOutputResponse) -> OutputChunk:
    """Check and convert one chunk.

    Raises:
        ContractViolation: it is larger than 256 KiB.
    """
    if len(message.data) > MAX_CHUNK_BYTES:
        raise ContractViolation(f"`data` has {len(message.data)} bytes, at most {MAX_CHUNK_BYTES}")
    return OutputChunk(message.offset, message.data, message.dropped_before, message.eof)


def posture(message: isolation_pb2.GetPostureResponse, *, mask: Callable[[str], str] = str) -> Posture:
    """Check and convert the posture; `mask` hides the secrets that the provider was given and may repeat.

    Raises:
        ContractViolation: a claim has no name or status, or is there twice.
    """
    if not 1 <= len(message.claims) <= MAX_CLAIMS:
        raise ContractViolation(f"`claims` has {len(message.claims)} entries, 1 to {MAX_CLAIMS} are allowed")
    claims = []
    for item in message.claims:
        name, status = sanitise(item.name, 64), _CLAIM_STATUSES.get(item.status)
        if not name or status is None:
            raise ContractViolation(f"claim `{name}` has no name, or a missing or unknown status")
        claims.append(Claim(name, status, sanitise(mask(item.mechanism), MAX_TEXT)))
    names = [claim.name for claim in claims]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ContractViolation(f"`claims` states {', '.join(repeated)} twice")
    notes = tuple(sanitise(mask(note), MAX_TEXT) for note in message.notes[:MAX_NOTES])
    return Posture(tuple(claims), message.run_uid, message.shares_gateway_user, notes)


def timestamp(
    message: isolation_pb2.Process | isolation_pb2.ProcessResult | isolation_pb2.NeverStarted, name: str
) -> datetime:
    """Read a REQUIRED timestamp field.

    Raises:
        ContractViolation: it is missing or out of range.
    """
    if not message.HasField(name):  # type: ignore[arg-type]
        raise ContractViolation(f"`{name}` is missing")
    value: Timestamp = getattr(message, name)
    try:
        return value.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise ContractViolation(f"`{name}` is out of range") from None


def state(value: isolation_pb2.ProcessState.ValueType) -> ProcessState:
    """Convert a state.

    Raises:
        ContractViolation: it is missing or unknown.
    """
    try:
        return _STATES[value]
    except KeyError:
        raise ContractViolation("`state` is missing or unknown") from None


def _file_message(reference: FileReference) -> isolation_pb2.FileReference:
    return isolation_pb2.FileReference(path=reference.path, sha256=reference.sha256)


def _result(message: isolation_pb2.ProcessResult) -> ProcessResult:
    cause = _CAUSES.get(message.cause)
    if cause is None:
        raise ContractViolation("`result.cause` is missing or unknown")
    try:
        duration = message.duration.ToTimedelta()
    except (ValueError, OverflowError):
        raise ContractViolation("`result.duration` is out of range") from None
    if duration < timedelta(0):
        raise ContractViolation("`result.duration` is negative")
    exit_code = message.exit_code if message.HasField("exit_code") else None
    signal = message.signal if message.HasField("signal") else None
    if exit_code is not None and signal is not None:
        raise ContractViolation("`result` has both `exit_code` and `signal`")
    if exit_code is not None and not 0 <= exit_code <= MAX_EXIT_CODE:
        raise ContractViolation(f"`result.exit_code` is {exit_code}, 0 to {MAX_EXIT_CODE} are possible")
    if signal is not None and not 1 <= signal <= MAX_SIGNAL:
        raise ContractViolation(f"`result.signal` is {signal}, 1 to {MAX_SIGNAL} are possible")
    if (cause is EndCause.EXITED and exit_code is None) or (cause is EndCause.SIGNALED and signal is None):
        raise ContractViolation(f"`result` lacks the status that the cause {cause} rests on")
    return ProcessResult(
        cause=cause,
        exit_code=exit_code,
        signal=signal,
        ended_at=timestamp(message, "ended_at"),
        duration=duration,
        stdout=_summary(message.stdout, "stdout"),
        stderr=_summary(message.stderr, "stderr"),
        tree_empty=message.tree_empty,
        descendants_killed=message.descendants_killed,
    )


def _summary(message: isolation_pb2.StreamSummary, name: str) -> StreamSummary:
    if max(len(message.head), len(message.tail)) > MAX_EVIDENCE_BYTES:
        raise ContractViolation(
            f"`result.{name}` carries more than {MAX_EVIDENCE_BYTES} bytes of head or tail"
        )
    if not len(message.head) + len(message.tail) <= message.total_bytes <= MAX_TOTAL_BYTES:
        raise ContractViolation(f"`result.{name}.total_bytes` does not fit its head and tail, or no total")
    if not _SHA256.fullmatch(message.sha256):
        raise ContractViolation(f"`result.{name}.sha256` is no digest")
    whole = len(message.head) + len(message.tail) == message.total_bytes
    if whole and hashlib.sha256(message.head + message.tail).hexdigest() != message.sha256:
        raise ContractViolation(f"`result.{name}.sha256` is not the digest of the bytes beside it")
    if message.dropped_bytes > message.total_bytes:
        raise ContractViolation(f"`result.{name}.dropped_bytes` is more than `total_bytes`")
    return StreamSummary(
        total_bytes=message.total_bytes,
        sha256=message.sha256,
        head=message.head,
        tail=message.tail,
        dropped_bytes=message.dropped_bytes,
    )
