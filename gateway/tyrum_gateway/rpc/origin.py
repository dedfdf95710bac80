"""From where a call comes, and what its transport proves: words for the record, decided by nobody but gRPC.

Invariant: a name that a client's certificate states is bounded and shows as what it is; without a
certificate that the gateway has verified there is none.
"""

import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Protocol

_LONGEST = 64


class Call(Protocol):
    """What gRPC knows about the other end of a call."""

    def peer(self) -> str:
        """Return the transport address."""
        ...

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """Return what the transport's handshake has established."""
        ...


def origin(call: Call) -> str:
    """Describe the other end.

    `unix socket` (only the socket's owner can open it), `tcp ADDRESS`, `tls ADDRESS`, or
    `tls ADDRESS, certificate NAME` with the common name of a client certificate that was verified.
    """
    if local(call):
        return "unix socket"
    rest = call.peer().partition(":")[2]
    address = urllib.parse.unquote(rest.rpartition(":")[0]).strip("[]")
    known = call.auth_context()
    if "ssl" not in _texts(known, "transport_security_type"):
        return f"tcp {address}"
    names = _texts(known, "x509_common_name")
    return f"tls {address}, certificate {_shown(names[0])}" if names else f"tls {address}"


def local(call: Call) -> bool:
    """Tell whether the call comes over a socket, which only its owner can open."""
    return call.peer().partition(":")[0] == "unix"


def certified(call: Call) -> bool:
    """Tell whether the client has proved to have a certificate that the gateway's authority signed."""
    return bool(_texts(call.auth_context(), "x509_pem_cert"))


def certificate_names(call: Call) -> frozenset[str]:
    """Return the names in a verified client certificate: its common name and the alternative ones."""
    if not certified(call):
        return frozenset()
    known = call.auth_context()
    return frozenset(_texts(known, "x509_common_name") + _texts(known, "x509_subject_alternative_name"))


def _texts(known: Mapping[str, Iterable[bytes]], key: str) -> list[str]:
    return [value.decode(errors="replace") for value in known.get(key, ())]


def _shown(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name[:_LONGEST])
