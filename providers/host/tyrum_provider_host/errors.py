"""From the status of a failed call to what the kernel does next: one class per way of recovering.

Invariant: a call counts as "had no effect" only when the provider itself said so with exactly one registered
reason under the code that the reason is registered for. Everything else leaves the outcome unknown.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from tyrum_provider_host.logs import sanitise

MAX_TEXT = 512
ANSWERED = "OK"
"""Code of a `ProviderBug` that lies in the answer: the provider took the call."""
_DETAILS_KEY = "grpc-status-details-bin"
_DEFAULT_RETRY_AFTER = 0.5
_MAX_RETRY_AFTER = 30.0


class Effect(StrEnum):
    """What a failed call did."""

    NONE = "none"
    UNKNOWN = "unknown"


class ProviderError(Exception):
    """Root of everything that goes wrong between the kernel and a provider."""


class HostSetupError(ProviderError):
    """The host itself cannot work; the message says what to change."""


class ProviderUnavailable(ProviderError):
    """No instance can take the call, and none was made.

    Attributes:
        provider: The operator's name.
        reason: Why, and what to do.
    """

    def __init__(self, provider: str, reason: str) -> None:
        super().__init__(f"provider `{provider}` is unavailable: {reason}")
        self.provider, self.reason = provider, reason


class CallError(ProviderError):
    """A call failed.

    Attributes:
        method: The RPC.
        code: gRPC code.
        reason: Registered reason, empty when the answer carried none.
        detail: The provider's words, untrusted, sanitised and capped.
        metadata: The dynamic parts of the message, sanitised and capped.
        effect: What is known about effects.
    """

    effect: ClassVar[Effect] = Effect.NONE
    passing: ClassVar[bool] = False
    """Whether the same call can succeed later although nobody changed anything."""

    def __init__(
        self,
        *,
        method: str,
        code: str,
        reason: str = "",
        detail: str = "",
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(f"{method}: {reason or code}" + (f": {detail}" if detail else ""))
        self.method, self.code, self.reason, self.detail, self.metadata = (
            method,
            code,
            reason,
            detail,
            metadata,
        )


class InvalidRequest(CallError):
    """The request is wrong: fix it, never repeat it unchanged."""


class Unauthenticated(CallError):
    """The instance does not accept the host's bearer: treat it as foreign."""


class PreconditionFailed(CallError):
    """The system is not in the state the call needs: fail closed, an operator or the kernel acts first."""


class Conflict(CallError):
    """Someone else was faster: read again, then decide."""


class Capacity(CallError):
    """A limit is reached: back off for `retry_after` seconds, then repeat with the same identifiers."""

    passing: ClassVar[bool] = True

    def __init__(
        self,
        *,
        method: str,
        code: str,
        reason: str,
        detail: str,
        metadata: Mapping[str, str],
        retry_after: float,
    ) -> None:
        super().__init__(method=method, code=code, reason=reason, detail=detail, metadata=metadata)
        self.retry_after = retry_after


class NotFound(CallError):
    """The named resource does not exist."""


class NotOffered(CallError):
    """The provider does not offer it: never repeat."""


class Transient(CallError):
    """The call had no effect and may be repeated."""

    passing: ClassVar[bool] = True


class WaitExpired(CallError):
    """The awaited state did not come in time; nothing changed."""

    passing: ClassVar[bool] = True


class ProviderBug(CallError):
    """The provider failed or broke its contract: report it; the outcome of the call is unknown."""

    effect: ClassVar[Effect] = Effect.UNKNOWN
    passing: ClassVar[bool] = True


class OutcomeUnknown(CallError):
    """Nobody knows whether the call had its effect: reconcile before anything else."""

    effect: ClassVar[Effect] = Effect.UNKNOWN
    passing: ClassVar[bool] = True


_Code = grpc.StatusCode
REGISTERED_CODES: Mapping[str, grpc.StatusCode] = MappingProxyType(
    {
        "FIELD_INVALID": _Code.INVALID_ARGUMENT,
        "REQUEST_ID_REUSED": _Code.ALREADY_EXISTS,
        "RESOURCE_NOT_FOUND": _Code.NOT_FOUND,
        "TOKEN_MISSING": _Code.UNAUTHENTICATED,
        "TOKEN_INVALID": _Code.UNAUTHENTICATED,
        "ROLE_REQUIRED": _Code.PERMISSION_DENIED,
        "REQUESTER_MAY_NOT_APPROVE": _Code.PERMISSION_DENIED,
        "NOT_OWNER": _Code.PERMISSION_DENIED,
        "NOT_CONFIGURED": _Code.FAILED_PRECONDITION,
        "CONFIG_IMMUTABLE": _Code.FAILED_PRECONDITION,
        "CONTRACT_INCOMPATIBLE": _Code.FAILED_PRECONDITION,
        "CLAIM_UNAVAILABLE": _Code.FAILED_PRECONDITION,
        "WORKSPACE_CHANGED": _Code.FAILED_PRECONDITION,
        "PROGRAM_CHANGED": _Code.FAILED_PRECONDITION,
        "PROGRAM_NOT_EXECUTABLE": _Code.FAILED_PRECONDITION,
        "PROCESS_RUNNING": _Code.FAILED_PRECONDITION,
        "BINDING_UNAVAILABLE": _Code.FAILED_PRECONDITION,
        "ALREADY_RESOLVED": _Code.FAILED_PRECONDITION,
        "OVERRIDE_NOT_DERIVABLE": _Code.FAILED_PRECONDITION,
        "LAST_ADMIN": _Code.FAILED_PRECONDITION,
        "PRINCIPAL_DISABLED": _Code.FAILED_PRECONDITION,
        "CONFIG_INVALID": _Code.FAILED_PRECONDITION,
        "VERSION_CONFLICT": _Code.ABORTED,
        "CONCURRENCY_LIMIT": _Code.RESOURCE_EXHAUSTED,
        "QUOTA": _Code.RESOURCE_EXHAUSTED,
        "DRAINING": _Code.UNAVAILABLE,
        "BACKEND_UNAVAILABLE": _Code.UNAVAILABLE,
        "WAIT_EXPIRED": _Code.DEADLINE_EXCEEDED,
        "CAPABILITY_NOT_DECLARED": _Code.UNIMPLEMENTED,
        "INTERNAL": _Code.INTERNAL,
        "STORE_CORRUPT": _Code.DATA_LOSS,
        "STALE_BINDING": _Code.ABORTED,
        "SECRET_REJECTED": _Code.INVALID_ARGUMENT,
        "ITEM_FORGOTTEN": _Code.FAILED_PRECONDITION,
        "SCOPE_NOT_EMPTY": _Code.FAILED_PRECONDITION,
    }
)
"""Every registered reason with the one code it is sent under."""


def translate(
    error: grpc.aio.AioRpcError, *, method: str, domain: str, mask: Callable[[str], str] = str
) -> CallError:
    """Turn a failed call into the class that says how to recover.

    Args:
        error: What gRPC raised.
        method: Name of the RPC.
        domain: Proto package of the service that was called.
        mask: Hides the secrets that the provider was given and may repeat.
    """
    code = error.code()
    infos, retry_after = _details(error)
    text = sanitise(mask(error.details() or ""), MAX_TEXT)
    if len(infos) != 1 or infos[0].domain != domain or REGISTERED_CODES.get(infos[0].reason) is not code:
        if code is _Code.UNIMPLEMENTED and not infos:
            # gRPC itself answers this for a method that the server does not have.
            return NotOffered(method=method, code=code.name, detail=text)
        return OutcomeUnknown(method=method, code=code.name, detail=text)
    reason = infos[0].reason
    metadata = {
        sanitise(key, 64): sanitise(mask(value), MAX_TEXT)
        for key, value in sorted(infos[0].metadata.items())[:32]
    }
    if code is _Code.RESOURCE_EXHAUSTED:
        return Capacity(
            method=method,
            code=code.name,
            reason=reason,
            detail=text,
            metadata=metadata,
            retry_after=retry_after,
        )
    return _CLASSES[code](method=method, code=code.name, reason=reason, detail=text, metadata=metadata)


_CLASSES: Mapping[grpc.StatusCode, type[CallError]] = MappingProxyType(
    {
        _Code.INVALID_ARGUMENT: InvalidRequest,
        _Code.ALREADY_EXISTS: InvalidRequest,
        _Code.NOT_FOUND: NotFound,
        _Code.UNAUTHENTICATED: Unauthenticated,
        _Code.PERMISSION_DENIED: Unauthenticated,
        _Code.FAILED_PRECONDITION: PreconditionFailed,
        _Code.ABORTED: Conflict,
        _Code.UNAVAILABLE: Transient,
        _Code.DEADLINE_EXCEEDED: WaitExpired,
        _Code.UNIMPLEMENTED: NotOffered,
        _Code.INTERNAL: ProviderBug,
        _Code.DATA_LOSS: ProviderBug,
    }
)


def _details(error: grpc.aio.AioRpcError) -> tuple[list[error_details_pb2.ErrorInfo], float]:
    infos: list[error_details_pb2.ErrorInfo] = []
    retry_after = _DEFAULT_RETRY_AFTER
    for key, value in error.trailing_metadata() or ():
        if key != _DETAILS_KEY or not isinstance(value, bytes):
            continue
        try:
            status = status_pb2.Status.FromString(value)
            for detail in status.details:
                if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
                    infos.append(error_details_pb2.ErrorInfo.FromString(detail.value))
                elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
                    delay = error_details_pb2.RetryInfo.FromString(detail.value).retry_delay
                    seconds = delay.seconds + delay.nanos / 1e9
                    retry_after = min(max(seconds, 0.0), _MAX_RETRY_AFTER)
        except DecodeError:
            return [], _DEFAULT_RETRY_AFTER
    return infos, retry_after
