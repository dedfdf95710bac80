"""TLS to the gateway: whom the command trusts, and who it is itself.

Invariant: a token leaves this machine only inside TLS whose other end has a certificate of the named
authority, for the name that was called.
"""

import shlex
import stat
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from tyrum_gateway.cli.failure import ExitCode, Failure
from tyrum_gateway.cli.remote import named_file

_LIMIT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClientTls:
    """What a channel needs, in PEM."""

    ca: bytes = field(repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)

    def credentials(self) -> grpc.ChannelCredentials:
        """Return them in gRPC's form."""
        return grpc.ssl_channel_credentials(
            root_certificates=self.ca, private_key=self.key, certificate_chain=self.certificate
        )


def client_tls() -> ClientTls | None:
    """Read the files that options or environment name; None when no authority is named.

    Raises:
        Failure: One cannot be read, a key can be read by others, or a certificate lacks its key.
    """
    ca, certificate, key = named_file("ca"), named_file("client_cert"), named_file("client_key")
    if ca is None:
        return None
    if (certificate is None) != (key is None):
        given, missing = ("certificate", "key") if key is None else ("key", "certificate")
        raise Failure(
            f"a client {given} is named without its {missing}",
            hint="name both: --client-cert FILE --client-key FILE",
            code=ExitCode.USAGE,
        )
    if key is not None:
        _require_private(key)
    return ClientTls(
        _read(ca, "CERTIFICATE"),
        None if certificate is None else _read(certificate, "CERTIFICATE"),
        None if key is None else _read(key, "PRIVATE KEY"),
    )


def _require_private(key: Path) -> None:
    try:
        status = key.stat()
    except OSError as error:
        raise Failure(f"cannot read `{key}`: {error.strerror}", code=ExitCode.USAGE) from error
    if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
        hint = f"chmod 600 {shlex.quote(str(key))}"
        raise Failure(f"`{key}` can be read by others", hint=hint, code=ExitCode.NOT_AUTHORIZED)


def _read(path: Path, kind: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_LIMIT)
    except OSError as error:
        raise Failure(f"cannot read `{path}`: {error.strerror}", code=ExitCode.USAGE) from error
    if f"{kind}-----".encode() not in content:
        raise Failure(f"`{path}` holds no {kind.lower()} in PEM", code=ExitCode.USAGE)
    return content
