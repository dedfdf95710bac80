"""The gateway's errors: one class per way of recovering.

    TyrumError
    ├── InvalidRequest       the caller fixes the named field
    ├── RequestIdReused      the caller chooses another request id
    ├── NotFound             the caller fixes the id
    ├── NotAuthenticated     the caller presents a valid token
    │   ├── TokenMissing     … any token at all
    │   └── CertificateMissing   … over a connection with the certificate bound to the principal
    ├── NotAuthorized        an administrator grants the role
    │   ├── NotOwner         the caller uses something of its own
    │   └── RequesterMayNotApprove   somebody else approves
    ├── AlreadyResolved      nothing: somebody else's answer stands
    ├── OverrideNotDerivable the caller approves once instead
    ├── LastAdmin            the caller makes somebody else an administrator first
    ├── PrincipalDisabled    the caller creates another principal
    ├── VersionConflict      the caller reads again, then decides
    │   └── PermissionEnded  … what policy says without that permission
    ├── QuotaExceeded        the caller waits
    ├── Draining             the caller retries after the restart
    ├── ProviderUnavailable  the operator looks at the provider
    ├── ModelUnavailable     the operator looks at the model
    │   ├── AnswerCutOff     the operator raises `max_output_tokens`
    │   ├── AnswerMalformed  the operator chooses a model that makes better calls
    │   ├── AnswerRefused    the user asks for something else
    │   ├── PromptTooLong    the user begins a new conversation
    │   └── TokensSpent      the user waits for the next day, or the operator raises the limit
    ├── StateUnusable        the operator looks at the state directory
    │   ├── Damaged          … and restores a backup: trying again does not help
    │   └── DiskFull         … and makes room; the caller retries after that
    └── KernelBug            somebody reports the incident

`public` is safe for users: it never holds secrets, paths of other users or provider text. `context` is for
the log. `TABLE` is the one mapping to wire reasons, gRPC codes and exit codes.
"""

from dataclasses import dataclass
from datetime import timedelta

from tyrum_gateway.domain.usage import UNKNOWN, Usage


class TyrumError(Exception):
    """Base of every error that the gateway raises on purpose."""

    def __init__(self, public: str, **context: str) -> None:
        super().__init__(public)
        self.public = public
        self.context = context


class InvalidRequest(TyrumError):
    """A field is missing, malformed or out of its limits."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"`{field}` {problem}", field=field)
        self.field = field
        self.problem = problem


class RequestIdReused(TyrumError):
    """A caller-chosen id was used before for another request."""


class NotFound(TyrumError):
    """The named resource does not exist or is not visible to the caller."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(f"unknown {what} `{name}`", resource=what, name=name)


class NotAuthenticated(TyrumError):
    """The presented credential is unknown, malformed, expired or revoked."""


class TokenMissing(NotAuthenticated):
    """No credential was presented."""


class CertificateMissing(NotAuthenticated):
    """The token counts only together with a client certificate, which the connection does not show."""


class NotAuthorized(TyrumError):
    """The principal lacks the role that the call requires."""


class NotOwner(NotAuthorized):
    """It is another principal's, and no role permits it to others."""


class RequesterMayNotApprove(NotAuthorized):
    """Whoever asked for the call may not approve it; the operator decided so."""


class AlreadyResolved(TyrumError):
    """The approval or turn already has another final state."""


class OverrideNotDerivable(TyrumError):
    """No standing permission can be made from a call; approving it once works."""


class LastAdmin(TyrumError):
    """Nobody would be left who may manage principals."""


class PrincipalDisabled(TyrumError):
    """The principal is disabled, which is final."""


class VersionConflict(TyrumError):
    """The compared version or digest is no longer current."""


class PermissionEnded(VersionConflict):
    """A standing permission that the change relied on was revoked, or has expired."""


class QuotaExceeded(TyrumError):
    """A queue or quota is full."""


class Draining(TyrumError):
    """The gateway is shutting down and takes no new work."""


class ProviderUnavailable(TyrumError):
    """The selected provider is not admitted; the operation settles, never elsewhere."""


class ModelUnavailable(TyrumError):
    """The model could not produce a step.

    Args:
        public: Says what happened; words of the model's server are masked, bounded and escaped in it.
        retryable: Whether another attempt may help. Text that was emitted before rules one out in any case.
        retry_after: How long the model's server asks to be left alone.
        usage: What the attempt is known to have used.
        context: For the log.
    """

    def __init__(
        self,
        public: str,
        *,
        retryable: bool,
        retry_after: timedelta | None = None,
        usage: Usage = UNKNOWN,
        **context: str,
    ) -> None:
        super().__init__(public, **context)
        self.retryable = retryable
        self.retry_after = retry_after
        self.usage = usage


class AnswerCutOff(ModelUnavailable):
    """The model used up what one step may say."""


class AnswerMalformed(ModelUnavailable):
    """The model answered, and its calls cannot be read."""


class AnswerRefused(ModelUnavailable):
    """The model, or a filter at its server, declined to answer."""


class PromptTooLong(ModelUnavailable):
    """The prompt, or prompt and answer together, do not fit the model's context."""


class TokensSpent(ModelUnavailable):
    """The principal has used the tokens of the day; the model was not asked."""


class StateUnusable(TyrumError):
    """The state directory is taken, damaged or of a newer version."""


class Damaged(StateUnusable):
    """Something stored cannot be read any more, or holds what no gateway writes."""


class DiskFull(QuotaExceeded, StateUnusable):
    """Nothing was written, for want of room: the one to whoever asked, the other to the gateway."""


class KernelBug(TyrumError):
    """An invariant does not hold: continuing would be worse than stopping."""


@dataclass(frozen=True, slots=True)
class Translation:
    """How one class of errors appears outside."""

    reason: str
    """Name of an ErrorReason without its prefix."""
    code: str
    """Name of the gRPC status code."""
    exit_code: int
    """Exit status of the command line, see the help topic."""


TABLE: dict[type[TyrumError], Translation] = {
    InvalidRequest: Translation("FIELD_INVALID", "INVALID_ARGUMENT", 2),
    RequestIdReused: Translation("REQUEST_ID_REUSED", "ALREADY_EXISTS", 1),
    NotFound: Translation("RESOURCE_NOT_FOUND", "NOT_FOUND", 1),
    TokenMissing: Translation("TOKEN_MISSING", "UNAUTHENTICATED", 4),
    NotAuthenticated: Translation("TOKEN_INVALID", "UNAUTHENTICATED", 4),
    NotAuthorized: Translation("ROLE_REQUIRED", "PERMISSION_DENIED", 4),
    NotOwner: Translation("NOT_OWNER", "PERMISSION_DENIED", 4),
    RequesterMayNotApprove: Translation("REQUESTER_MAY_NOT_APPROVE", "PERMISSION_DENIED", 4),
    AlreadyResolved: Translation("ALREADY_RESOLVED", "FAILED_PRECONDITION", 1),
    OverrideNotDerivable: Translation("OVERRIDE_NOT_DERIVABLE", "FAILED_PRECONDITION", 1),
    LastAdmin: Translation("LAST_ADMIN", "FAILED_PRECONDITION", 1),
    PrincipalDisabled: Translation("PRINCIPAL_DISABLED", "FAILED_PRECONDITION", 1),
    VersionConflict: Translation("VERSION_CONFLICT", "ABORTED", 1),
    QuotaExceeded: Translation("QUOTA", "RESOURCE_EXHAUSTED", 1),
    Draining: Translation("DRAINING", "UNAVAILABLE", 1),
    ProviderUnavailable: Translation("BINDING_UNAVAILABLE", "FAILED_PRECONDITION", 6),
    ModelUnavailable: Translation("BACKEND_UNAVAILABLE", "UNAVAILABLE", 1),
    StateUnusable: Translation("STORE_CORRUPT", "DATA_LOSS", 1),
    KernelBug: Translation("INTERNAL", "INTERNAL", 1),
}
"""Errors ↔ wire reasons ↔ gRPC codes ↔ exit codes. Anything else is INTERNAL with an incident id."""


def translate(error: TyrumError) -> Translation:
    """Find the row of an error; subclasses without a row of their own share their parent's."""
    for kind in type(error).__mro__:
        if kind in TABLE:
            return TABLE[kind]
    return TABLE[KernelBug]
