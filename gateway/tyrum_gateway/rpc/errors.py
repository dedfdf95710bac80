"""Errors on the wire: google.rpc.Status with exactly one ErrorInfo, made from the one table of errors.

Invariant: what reaches the wire is the public message of a `TyrumError`; anything else is INTERNAL with an
incident id, and its details stay in the log.
"""

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from tyrum_gateway.domain.errors import InvalidRequest, TyrumError, translate

DETAILS_KEY = "grpc-status-details-bin"
"""Trailer that carries the status."""

MAX_TEXT = 1024
"""Bytes of the longest text in an error; together the parts fit into 8 KiB of trailers."""

_RETRY_SECONDS = 1


class MethodUnknown(TyrumError):
    """The gateway does not serve the method."""


def code_of(error: TyrumError) -> grpc.StatusCode:
    """Find the gRPC code of an error."""
    if isinstance(error, MethodUnknown):
        return grpc.StatusCode.UNIMPLEMENTED
    return grpc.StatusCode[translate(error).code]


def status_of(error: TyrumError, domain: str) -> status_pb2.Status:
    """Build the status of an error; `domain` is the proto package of the called service."""
    code = code_of(error)
    unknown = isinstance(error, MethodUnknown)
    reason = "CAPABILITY_NOT_DECLARED" if unknown else translate(error).reason
    metadata = {key: clip(value) for key, value in list(error.context.items())[:4]}
    details: list[Message] = [error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata=metadata)]
    if isinstance(error, InvalidRequest):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=clip(error.field), description=clip(error.problem)
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        details.append(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=_RETRY_SECONDS)))
    packed = []
    for detail in details:
        packed.append(any_pb2.Any())
        packed[-1].Pack(detail)
    return status_pb2.Status(code=code.value[0], message=clip(error.public), details=packed)


def clip(text: str) -> str:
    """Cut text to `MAX_TEXT` bytes of UTF-8."""
    encoded = text.encode(errors="replace")
    return (
        encoded.decode()
        if len(encoded) <= MAX_TEXT
        else encoded[: MAX_TEXT - 3].decode(errors="ignore") + "…"
    )
