"""Between the messages of `tyrum.isolation.v1` and this provider's own types.

Invariant: every field of a request is held to the limits that its comment in the contract states; the first
one that breaks them is named by place, never by value.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from google.protobuf import duration_pb2, timestamp_pb2

from tyrum.isolation.v1 import isolation_pb2 as pb
from tyrum.provider.v1 import binding_pb2
from tyrum_local_spawn.failures import Invalid, Unmet
from tyrum_local_spawn.ids import OperationId, ProcessId
from tyrum_local_spawn.output import OutputPiece
from tyrum_local_spawn.posture import NOT_ENFORCED, Posture
from tyrum_local_spawn.run import RunView, StartRequest
from tyrum_local_spawn.store import OPERATION_ID
from tyrum_local_spawn.supervision.order import FileOrder, Order
from tyrum_local_spawn.supervision.record import Cause, ExitRecord, StreamEnd, Tombstone

HANDLE_VERSION: Final = 1
CONTRACT_MAJOR: Final = 1
MAX_PAGE: Final = 500

_PROCESS_ID: Final = re.compile(r"proc_[0-9a-z]{26}")
_BINDING_ID: Final = re.compile(r"bind_[0-9a-z]{26}")
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")
_CLAIM: Final = re.compile(r"[a-z0-9_.]{1,64}")
_DEFAULT_PAGE: Final = 100
_MAX_PATH_BYTES: Final = 4096
_MAX_ARGUMENT_BYTES: Final = 128 * 1024 - 1
"""What Linux takes as one argument or one NAME=value."""
_MAX_JOURNAL_ID: Final = 64
_NANO: Final = 1_000_000_000

_CAUSES: Final[Mapping[Cause, pb.EndCause.ValueType]] = {
    Cause.EXITED: pb.END_CAUSE_EXITED,
    Cause.SIGNALED: pb.END_CAUSE_SIGNALED,
    Cause.WALL_TIME: pb.END_CAUSE_WALL_TIME,
    Cause.OUTPUT_LIMIT: pb.END_CAUSE_OUTPUT_LIMIT,
    Cause.CANCELLED: pb.END_CAUSE_CANCELLED,
    Cause.PROVIDER_GONE: pb.END_CAUSE_PROVIDER_GONE,
    Cause.START_FAILED: pb.END_CAUSE_START_FAILED,
    Cause.LOST: pb.END_CAUSE_LOST,
}


def check_context(context: binding_pb2.Binding | None, provider_id: str) -> None:
    """Refuse a binding that is not this provider's."""
    if context is None:
        raise _invalid("context.binding", "is required")
    _require(
        _BINDING_ID.fullmatch(context.binding_id),
        "context.binding.binding_id",
        "must be `bind_` and 26 characters",
    )
    _require(context.provider_id == provider_id, "context.binding.provider_id", "names another provider")
    _require(1 <= _size(context.profile) <= 64, "context.binding.profile", "must have 1 to 64 bytes")
    _require(
        context.contract_major == CONTRACT_MAJOR,
        "context.binding.contract_major",
        f"must be {CONTRACT_MAJOR}",
    )


def read_context(
    request: pb.StartProcessRequest
    | pb.WaitProcessRequest
    | pb.GetProcessRequest
    | pb.ResolveOperationRequest
    | pb.ReadOutputRequest
    | pb.CancelProcessRequest
    | pb.ReleaseProcessRequest,
    provider_id: str,
) -> str:
    """Check the operation context and return the actor, for the log."""
    _require(request.HasField("context"), "context", "is required")
    context = request.context
    check_context(context.binding if context.HasField("binding") else None, provider_id)
    actor = context.actor
    _require(
        1 <= len(actor) <= 128 and actor.isascii() and actor.isprintable(),
        "context.actor",
        "must be 1 to 128 printable ASCII characters",
    )
    _require(len(context.traceparent) <= 64, "context.traceparent", "must have at most 64 characters")
    return actor


def read_operation_id(value: str) -> OperationId:
    """Check an operation id."""
    _require(OPERATION_ID.fullmatch(value), "operation_id", "must be `op_` and 26 characters of [0-9a-z]")
    return OperationId(value)


def read_process_id(value: str) -> ProcessId:
    """Check a process id."""
    _require(_PROCESS_ID.fullmatch(value), "process_id", "must be `proc_` and 26 characters of [0-9a-z]")
    return ProcessId(value)


def read_start(request: pb.StartProcessRequest) -> StartRequest:
    """Check a request to start, but for its context."""
    operation_id = read_operation_id(request.operation_id)
    process_id = read_process_id(request.process_id)
    _require(request.HasField("spec"), "spec", "is required")
    spec = request.spec
    _require(spec.HasField("program"), "spec.program", "is required")
    _require(spec.HasField("workspace"), "spec.workspace", "is required")
    _require(spec.HasField("limits"), "spec.limits", "is required")
    _require(spec.limits.output_bytes >= 1, "spec.limits.output_bytes", "must be at least 1")
    _require(len(spec.stdin) <= 64 * 1024, "spec.stdin", "must have at most 64 KiB")
    _require(len(spec.operands) <= 32, "spec.operands", "must have at most 32 entries")
    _require(len(spec.required_claims) <= 64, "spec.required_claims", "must have at most 64 entries")
    for claim in spec.required_claims:
        _require(_CLAIM.fullmatch(claim), "spec.required_claims", "must name claims of the registry")
    workspace = spec.workspace
    _path(workspace.path, "spec.workspace.path")
    _require(workspace.device, "spec.workspace.device", "is required")
    _require(workspace.inode, "spec.workspace.inode", "is required")
    order = Order(
        operation_id=operation_id,
        process_id=process_id,
        spec_digest="",
        program=_file(spec.program, "spec.program"),
        argv=_argv(spec.argv),
        env=_env(spec),
        workspace=workspace.path,
        device=workspace.device,
        inode=workspace.inode,
        cwd=_cwd(spec.cwd),
        stdin=spec.stdin,
        operands=tuple(
            _file(operand, f"spec.operands[{index}]") for index, operand in enumerate(spec.operands)
        ),
        wall_time=_seconds(
            spec.limits.wall_time if spec.limits.HasField("wall_time") else None,
            "spec.limits.wall_time",
            0.001,
            86400,
        ),
        output_bytes=spec.limits.output_bytes,
        kill_grace=_seconds(
            spec.limits.kill_grace if spec.limits.HasField("kill_grace") else None,
            "spec.limits.kill_grace",
            0,
            30,
        ),
        spool_bytes=0,
        run_as=None,
    )
    return StartRequest(order, tuple(spec.required_claims), spec.durable)


def read_linger(request: pb.StartProcessRequest) -> float:
    """Return how long a start may wait for the end of what it started, in seconds."""
    return _seconds(request.linger, "linger", 0, 10) if request.HasField("linger") else 0.0


def read_wait_timeout(request: pb.WaitProcessRequest) -> float:
    """Return how long to wait, in seconds."""
    return _seconds(request.timeout if request.HasField("timeout") else None, "timeout", 0, 600)


def read_cancel_grace(request: pb.CancelProcessRequest) -> float | None:
    """Return the grace in seconds, or None for the one of the start."""
    return _seconds(request.grace, "grace", 0, 30) if request.HasField("grace") else None


def read_stream(value: pb.OutputStream.ValueType) -> int:
    """Return the number of a stream: 0 is stdout, 1 is stderr."""
    match value:
        case pb.OUTPUT_STREAM_STDOUT:
            return 0
        case pb.OUTPUT_STREAM_STDERR:
            return 1
        case _:
            raise _invalid("stream", "must be STDOUT or STDERR")


def read_page(request: pb.ListProcessesRequest) -> tuple[str, int]:
    """Return the id after which the page begins, and its size."""
    _require(request.page_size <= MAX_PAGE, "page_size", f"must be at most {MAX_PAGE}")
    if request.page_token:
        _require(_PROCESS_ID.fullmatch(request.page_token), "page_token", "is not a token of this provider")
    return request.page_token, request.page_size or _DEFAULT_PAGE


def process_message(view: RunView, *, evidence: bool = True) -> pb.Process:
    """Build the message of a run."""
    message = pb.Process(
        process_id=view.process_id,
        operation_id=view.operation_id,
        state=state_of(view),
        handle=view.operation_id.encode(),
        handle_version=HANDLE_VERSION,
        started_at=_timestamp(view.started_at_ns),
    )
    if view.end is not None:
        message.result.CopyFrom(_result_message(view.end, evidence=evidence))
    return message


def state_of(view: RunView) -> pb.ProcessState.ValueType:
    """Return the state of a run."""
    return pb.PROCESS_STATE_RUNNING if view.end is None else pb.PROCESS_STATE_ENDED


def check_journal(request: pb.StartProcessRequest, identity: str) -> None:
    """Refuse to start anything under a binding to a journal that is no longer this provider's.

    Raises:
        Unmet: the binding names another one.
    """
    bound = request.context.binding.journal_id
    _require(len(bound) <= _MAX_JOURNAL_ID, "context.binding.journal_id", "must have at most 64 characters")
    if bound and bound != identity:
        raise Unmet("BINDING_UNAVAILABLE", "the journal of the binding is gone; nothing was started")


def resolution_message(found: RunView | Tombstone, identity: str) -> pb.ResolveOperationResponse:
    """Build the answer about an operation."""
    match found:
        case RunView():
            return pb.ResolveOperationResponse(process=process_message(found))
        case Tombstone(recorded_at_ns=moment):
            never = pb.NeverStarted(recorded_at=_timestamp(moment), journal_id=identity)
            return pb.ResolveOperationResponse(never_started=never)


def output_message(piece: OutputPiece) -> pb.ReadOutputResponse:
    """Build one chunk."""
    return pb.ReadOutputResponse(
        offset=piece.offset, data=piece.data, dropped_before=piece.dropped_before, eof=piece.eof
    )


def posture_message(posture: Posture) -> pb.GetPostureResponse:
    """Build the posture."""
    return pb.GetPostureResponse(
        claims=[
            pb.Claim(name=name, status=pb.CLAIM_STATUS_NOT_ENFORCED, mechanism=why)
            for name, why in NOT_ENFORCED.items()
        ],
        run_uid=posture.run_uid,
        shares_gateway_user=posture.shares_gateway_user,
        notes=posture.notes,
    )


def _result_message(end: ExitRecord, *, evidence: bool) -> pb.ProcessResult:
    # A wall clock that was set back while the command ran must not make the record contradict itself.
    ended_at = max(end.ended_at_ns, end.started_at_ns)
    return pb.ProcessResult(
        cause=_CAUSES[end.cause],
        exit_code=end.exit_code,
        signal=end.signal,
        ended_at=_timestamp(ended_at),
        duration=_duration(end.duration_ns),
        stdout=_summary(end.stdout, evidence=evidence),
        stderr=_summary(end.stderr, evidence=evidence),
        tree_empty=end.tree_empty,
        descendants_killed=end.descendants_killed,
    )


def _summary(stream: StreamEnd, *, evidence: bool) -> pb.StreamSummary:
    return pb.StreamSummary(
        total_bytes=stream.total_bytes,
        sha256=stream.sha256,
        head=stream.head if evidence else b"",
        tail=stream.tail if evidence else b"",
        dropped_bytes=stream.dropped_bytes,
    )


def _timestamp(nanoseconds: int) -> timestamp_pb2.Timestamp:
    return timestamp_pb2.Timestamp(seconds=nanoseconds // _NANO, nanos=nanoseconds % _NANO)


def _duration(nanoseconds: int) -> duration_pb2.Duration:
    return duration_pb2.Duration(seconds=nanoseconds // _NANO, nanos=nanoseconds % _NANO)


def _seconds(value: duration_pb2.Duration | None, place: str, low: float, high: float) -> float:
    if value is None:
        raise _invalid(place, "is required")
    rule = f"must be {low:g} s to {high:g} s"
    _require(0 <= value.nanos < _NANO and 0 <= value.seconds <= high, place, rule)
    seconds = value.seconds + value.nanos / _NANO
    _require(low <= seconds <= high, place, rule)
    return seconds


def _argv(argv: Sequence[str]) -> tuple[str, ...]:
    place = "spec.argv"
    _require(1 <= len(argv) <= 256, place, "must have 1 to 256 entries")
    _require(argv[0], place, "must not begin with an empty entry")
    for argument in argv:
        _require("\0" not in argument, place, "must not hold NUL")
        _require(_size(argument) <= _MAX_ARGUMENT_BYTES, place, "holds an argument of 128 KiB or more")
    return tuple(argv)


def _env(spec: pb.ProcessSpec) -> dict[str, str]:
    _require(len(spec.env) <= 128, "spec.env", "must have at most 128 entries")
    _require(len(spec.secret_env) <= 32, "spec.secret_env", "must have at most 32 entries")
    for place, variables in (("spec.env", spec.env), ("spec.secret_env", spec.secret_env)):
        for name, value in variables.items():
            _require(_ENV_NAME.fullmatch(name), place, "must have names that match [A-Za-z_][A-Za-z0-9_]*")
            _require("\0" not in value, place, "must not hold NUL")
            _require(
                _size(name) + 1 + _size(value) <= _MAX_ARGUMENT_BYTES,
                place,
                "holds an entry of 128 KiB or more",
            )
    for name, value in spec.secret_env.items():
        _require(name not in spec.env, "spec.secret_env", "must not repeat a name of `spec.env`")
        _require(_size(value) <= 64 * 1024, "spec.secret_env", "must have values of at most 64 KiB")
    total = sum(map(_size, spec.argv)) + sum(_size(name) + _size(value) for name, value in spec.env.items())
    _require(total <= 256 * 1024, "spec.argv", "must have at most 256 KiB together with `spec.env`")
    return {**spec.env, **spec.secret_env}


def _cwd(cwd: str) -> str:
    place = "spec.cwd"
    _require(
        _size(cwd) <= _MAX_PATH_BYTES and "\0" not in cwd, place, "must have at most 4096 bytes and no NUL"
    )
    _require(
        not cwd or all(part not in {"", ".", ".."} for part in cwd.split("/")),
        place,
        "must be relative to the workspace, of names without `.`, `..` and empty ones",
    )
    return cwd


def _file(file: pb.FileReference, place: str) -> FileOrder:
    _path(file.path, f"{place}.path")
    _require(
        not file.sha256 or _SHA256.fullmatch(file.sha256), f"{place}.sha256", "must be 64 hexadecimal digits"
    )
    return FileOrder(file.path, file.sha256.lower())


def _path(path: str, place: str) -> None:
    _require(
        path.startswith("/") and "\0" not in path and _size(path) <= _MAX_PATH_BYTES,
        place,
        "must be an absolute path of at most 4096 bytes without NUL",
    )


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _require(holds: object, place: str, rule: str) -> None:
    if not holds:
        raise _invalid(place, rule)


def _invalid(place: str, rule: str) -> Invalid:
    return Invalid(f"`{place}` {rule}", {"field": place})
