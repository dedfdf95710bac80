"""How commands fail: a message, a hint and one of the documented exit codes.

Invariant: errors of the gateway keep the exit code of the one error table in `domain.errors`.
"""

import sys
from enum import IntEnum

from tyrum_gateway.cli.prose import told
from tyrum_gateway.cli.terminal import visible
from tyrum_gateway.domain.errors import TABLE, DiskFull, TyrumError, translate


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFIG_INVALID = 3
    NOT_AUTHORIZED = 4
    APPROVAL_REFUSED = 5
    PROVIDER_UNAVAILABLE = 6
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "Done.",
    ExitCode.FAILURE: "It failed; also when no gateway answers, or the turn failed or was cancelled.",
    ExitCode.USAGE: "The command line or a value in it is wrong.",
    ExitCode.CONFIG_INVALID: "The configuration file is invalid or cannot be read.",
    ExitCode.NOT_AUTHORIZED: "No valid token, or it lacks the role.",
    ExitCode.APPROVAL_REFUSED: "An approval that the turn needed was denied or expired.",
    ExitCode.PROVIDER_UNAVAILABLE: "A provider is unavailable or was refused by admission.",
    ExitCode.INTERRUPTED: "Interrupted (Ctrl-C). A turn that was accepted goes on.",
}
"""What each code means, for help and documentation."""

_BY_REASON = {row.reason: ExitCode(row.exit_code) for row in TABLE.values()}
_HINTS = {
    "TOKEN_MISSING": "the token is read from `operator.token` in the state directory, or TYRUM_TOKEN_FILE",
    "TOKEN_INVALID": "use the token file of this gateway's state directory (--state-dir or TYRUM_STATE_DIR), "
    "or name yours with --token-file; a principal bound to a certificate needs --client-cert too",
    "LAST_ADMIN": "tyrum principals create NAME --role admin, and a token for it",
    "ROLE_REQUIRED": "ask an administrator for the role; `tyrum whoami` shows those you have",
    "NOT_OWNER": "begin a conversation of your own: tyrum chat",
    "REQUESTER_MAY_NOT_APPROVE": "denying it is possible; to approve, another principal is needed",
    "OVERRIDE_NOT_DERIVABLE": "approve it once instead: y in a chat, or without --always",
    "ALREADY_RESOLVED": "tyrum approvals list --all shows who resolved it",
    "VERSION_CONFLICT": "read it again, then decide: tyrum approvals show ID",
    "BINDING_UNAVAILABLE": "tyrum providers list",
    "DRAINING": "try again when the gateway is back",
    "QUOTA": "wait until a turn ends or there is room; `tyrum approvals list` shows what waits for an answer",
    "INTERNAL": "the gateway's log has the details under the incident id",
}


class Failure(Exception):
    """A command cannot do what it was asked to.

    `hint` is what the user can do about it, empty when nothing helps.
    """

    def __init__(self, message: str, *, hint: str = "", code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


def from_reason(reason: str, message: str) -> Failure:
    """Describe an error that a gateway's service answered with."""
    code = _BY_REASON.get(reason, ExitCode.FAILURE)
    return Failure(message, hint=_HINTS.get(reason, ""), code=code)


def from_error(error: TyrumError) -> Failure:
    """Describe an error of the gateway itself."""
    row = translate(error)
    hint = "" if isinstance(error, DiskFull) else _HINTS.get(row.reason, "")  # its message says what to do
    return Failure(error.public, hint=hint, code=ExitCode(row.exit_code))


def first_of(error: BaseException) -> BaseException:
    """Return the first error of a group that may hold groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def report(failure: Failure) -> None:
    """Print `error:` and `hint:` lines to stderr."""
    print(told(f"error: {visible(failure.message)}", sys.stderr), file=sys.stderr)
    if failure.hint:
        print(told(f"hint: {visible(failure.hint)}", sys.stderr), file=sys.stderr)
