"""The one way in which a provider says no: a registered reason, a public message, metadata.

Invariant: the gRPC code of a reason never varies, and every error carries exactly one ErrorInfo whose domain
is the proto package of the called service. Texts are clipped, so that an error always fits into trailers.
"""

from collections.abc import Mapping

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from tyrum.error.v1 import error_pb2
from tyrum.error.v1.error_pb2 import ErrorReason

CODES: Mapping[ErrorReason.ValueType, grpc.StatusCode] = {
    error_pb2.ERROR_REASON_FIELD_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    error_pb2.ERROR_REASON_SECRET_REJECTED: grpc.StatusCode.INVALID_ARGUMENT,
    error_pb2.ERROR_REASON_REQUEST_ID_REUSED: grpc.StatusCode.ALREADY_EXISTS,
    error_pb2.ERROR_REASON_RESOURCE_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    error_pb2.ERROR_REASON_TOKEN_MISSING: grpc.StatusCode.UNAUTHENTICATED,
    error_pb2.ERROR_REASON_TOKEN_INVALID: grpc.StatusCode.UNAUTHENTICATED,
    error_pb2.ERROR_REASON_ROLE_REQUIRED: grpc.StatusCode.PERMISSION_DENIED,
    error_pb2.ERROR_REASON_REQUESTER_MAY_NOT_APPROVE: grpc.StatusCode.PERMISSION_DENIED,
    error_pb2.ERROR_REASON_NOT_OWNER: grpc.StatusCode.PERMISSION_DENIED,
    error_pb2.ERROR_REASON_NOT_CONFIGURED: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_CONFIG_IMMUTABLE: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_CONTRACT_INCOMPATIBLE: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_CLAIM_UNAVAILABLE: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_WORKSPACE_CHANGED: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_PROGRAM_CHANGED: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_PROGRAM_NOT_EXECUTABLE: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_PROCESS_RUNNING: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_BINDING_UNAVAILABLE: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_ALREADY_RESOLVED: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_OVERRIDE_NOT_DERIVABLE: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_LAST_ADMIN: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_PRINCIPAL_DISABLED: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_CONFIG_INVALID: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_ITEM_FORGOTTEN: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_SCOPE_NOT_EMPTY: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.ERROR_REASON_VERSION_CONFLICT: grpc.StatusCode.ABORTED,
    error_pb2.ERROR_REASON_STALE_BINDING: grpc.StatusCode.ABORTED,
    error_pb2.ERROR_REASON_CONCURRENCY_LIMIT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    error_pb2.ERROR_REASON_QUOTA: grpc.StatusCode.RESOURCE_EXHAUSTED,
    error_pb2.ERROR_REASON_DRAINING: grpc.StatusCode.UNAVAILABLE,
    error_pb2.ERROR_REASON_BACKEND_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    error_pb2.ERROR_REASON_WAIT_EXPIRED: grpc.StatusCode.DEADLINE_EXCEEDED,
    error_pb2.ERROR_REASON_CAPABILITY_NOT_DECLARED: grpc.StatusCode.UNIMPLEMENTED,
    error_pb2.ERROR_REASON_INTERNAL: grpc.StatusCode.INTERNAL,
    error_pb2.ERROR_REASON_STORE_CORRUPT: grpc.StatusCode.DATA_LOSS,
}
"""The gRPC code of every reason, as the comments of `error.proto` state it."""

STATUS_DETAILS_KEY = "grpc-status-details-bin"
DEFAULT_RETRY_AFTER = 0.5
"""Seconds that RetryInfo names when a capacity error does not say how long."""

# Together with base64 this stays well below gRPC's soft limit of 8 KiB for trailers.
MAX_MESSAGE_BYTES = 512
MAX_METADATA_VALUE_BYTES = 2048
MAX_METADATA_BYTES = 3072


class ServiceError(Exception):
    """An expected refusal or failure of an RPC, raised by handlers and put on the wire by the guard.

    Args:
        reason: a value of `tyrum.error.v1.ErrorReason`; it decides the gRPC code.
        message: text for the caller, public: no secrets, no values of the configuration, no stack.
        metadata: every dynamic part of the message, by name.
        retry_after: seconds for RetryInfo; capacity reasons always carry one.

    Raises:
        ValueError: the reason is not registered.
    """

    def __init__(
        self,
        reason: ErrorReason.ValueType,
        message: str,
        metadata: Mapping[str, str] | None = None,
        *,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        if reason not in CODES:
            raise ValueError(f"`{reason}` is not a registered reason")
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after
        if retry_after is None and self.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            self.retry_after = DEFAULT_RETRY_AFTER

    @property
    def code(self) -> grpc.StatusCode:
        """The gRPC code of the reason."""
        return CODES[self.reason]

    @property
    def reason_name(self) -> str:
        """The reason as ErrorInfo spells it, without prefix."""
        return ErrorReason.Name(self.reason).removeprefix("ERROR_REASON_")


def field_invalid(field: str, rule: str) -> ServiceError:
    """Say that a request field is missing, malformed or out of its limits.

    Args:
        field: path of the field, such as `spec.argv`.
        rule: what must hold, such as `must have 1 to 256 entries`; never the offending value.
    """
    return ServiceError(error_pb2.ERROR_REASON_FIELD_INVALID, f"`{field}` {rule}", {"field": field})


def status_of(error: ServiceError, domain: str) -> status_pb2.Status:
    """Build the status for the wire; `domain` is the proto package of the called service."""
    message = clip(error.message, MAX_MESSAGE_BYTES)
    details: list[Message] = [
        error_details_pb2.ErrorInfo(
            reason=error.reason_name, domain=domain, metadata=_bounded(error.metadata)
        )
    ]
    if error.reason == error_pb2.ERROR_REASON_FIELD_INVALID:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=clip(error.metadata.get("field", ""), MAX_MESSAGE_BYTES), description=message
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if error.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(error.retry_after * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))

    packed = []
    for detail in details:
        packed.append(any_pb2.Any())
        packed[-1].Pack(detail)
    number, _ = error.code.value
    return status_pb2.Status(code=number, message=message, details=packed)


def clip(text: str, limit: int) -> str:
    """Cut `text` to at most `limit` bytes of UTF-8; a cut text ends in an ellipsis."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= limit:
        return encoded.decode()
    return encoded[: limit - 3].decode(errors="ignore") + "…"


def _bounded(metadata: Mapping[str, str]) -> dict[str, str]:
    bounded: dict[str, str] = {}
    room = MAX_METADATA_BYTES
    for key, value in metadata.items():
        text = clip(value, MAX_METADATA_VALUE_BYTES)
        room -= len(key.encode()) + len(text.encode())
        if room < 0:
            break
        bounded[key] = text
    return bounded
