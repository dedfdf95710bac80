"""Why a server could not be reached, told from what is behind a library's error."""

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from enum import Enum, auto

import httpx2

_NAME = re.compile("mismatch|doesn't match|not valid for", re.IGNORECASE)
_NAME_CODES = frozenset({62, 64})
"""OpenSSL's codes for a certificate of another host name or address."""
_EXPIRED, _NOT_YET = 10, 9
_DEEPEST = 32


class Reach(Enum):
    """What failed on the way to a server."""

    NAME_UNKNOWN = auto()
    REFUSED = auto()
    TIMED_OUT = auto()
    NO_ROUTE = auto()
    HANDSHAKE = auto()
    OTHER_NAME = auto()
    EXPIRED = auto()
    UNTRUSTED = auto()
    ENDED = auto()
    """The connection ended before an answer came."""


TOLD = {
    Reach.NAME_UNKNOWN: "the host name of `{address}` cannot be resolved (DNS)",
    Reach.REFUSED: "`{address}` refuses connections: no server listens there",
    Reach.TIMED_OUT: "`{address}` does not answer in time",
    Reach.NO_ROUTE: "there is no route to `{address}`",
    Reach.HANDSHAKE: "the TLS handshake with `{address}` fails; it may speak no TLS there (`http://`), or "
    "other versions of it",
    Reach.OTHER_NAME: "the certificate of `{address}` is for another host name; `base_url` must name one "
    "that it has",
    Reach.EXPIRED: "the certificate of `{address}` has expired, or is not valid yet",
    Reach.UNTRUSTED: "the certificate of `{address}` is not trusted; if it has an authority of its own, the "
    "operator names it as the model's `ca_file`",
    Reach.ENDED: "`{address}` ended the connection without an answer",
}
"""In words, with `{address}` for the server's."""
LASTING = frozenset({Reach.HANDSHAKE, Reach.OTHER_NAME, Reach.EXPIRED, Reach.UNTRUSTED})
"""Where another attempt does not help."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """List an error and what is behind it, so far as that says anything."""
    waiting, left = [error], _DEEPEST
    while waiting and left:
        cause, left = waiting.pop(0), left - 1
        yield cause
        if isinstance(cause, BaseExceptionGroup):
            waiting += cause.exceptions
        if (behind := cause.__cause__ or cause.__context__) is not None:
            waiting.append(behind)


def why(error: BaseException) -> Reach:
    """Tell what failed."""
    found = [reach for cause in causes(error) if (reach := _of(cause)) is not None]
    # The most telling comes first: a refused connection may be one of several addresses of a name.
    return min(found, key=list(Reach).index, default=Reach.ENDED)


def _of(cause: BaseException) -> Reach | None:
    match cause:
        case ssl.SSLCertVerificationError(verify_code=code, verify_message=message):
            if code in _NAME_CODES or _NAME.search(str(message)):
                return Reach.OTHER_NAME
            return Reach.EXPIRED if code in {_EXPIRED, _NOT_YET} else Reach.UNTRUSTED
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
            return Reach.ENDED
        case ssl.SSLError():
            return Reach.HANDSHAKE
        case socket.gaierror():
            return Reach.NAME_UNKNOWN
        case ConnectionRefusedError():
            return Reach.REFUSED
        case TimeoutError() | httpx2.TimeoutException():
            return Reach.TIMED_OUT
        case OSError(errno=number) if number in {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}:
            return Reach.NO_ROUTE
        case _:
            return None
