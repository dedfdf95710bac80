"""Where clients reach the gateway must be safe: nothing but loopback without TLS, no key without an effect.

The files that `listen.tls` names are looked at when the file is validated or served, not when it is read.
"""

import os
import stat
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path as FilePath

from tyrum_gateway.config import document
from tyrum_gateway.config.authorities import authority_problem, read_pem
from tyrum_gateway.config.document import Scalar, descend
from tyrum_gateway.config.problems import Problem
from tyrum_gateway.config.settings import TlsSettings
from tyrum_gateway.config.values import is_loopback, split_tcp

EXPIRY_DAYS = 30
"""Days before its end from which a certificate is warned of."""


def listening(root: document.Mapping, file: str) -> Iterator[Problem]:
    """List what is wrong between the keys of `listen`."""
    tcp, tls = descend(root, "listen", "tcp"), descend(root, "listen", "tls")
    if isinstance(tcp, Scalar) and isinstance(tcp.value, str) and tls is None:
        try:
            host, _ = split_tcp(tcp.value)
        except ValueError:
            return
        if not is_loopback(host):
            message = (
                "an address other than loopback needs TLS: add `listen.tls`, or use 127.0.0.1 or [::1], or "
                "reach the gateway through `unix`"
            )
            yield Problem(file, tcp.place, ("listen", "tcp"), "not_loopback", message)
    if tls is not None and tcp is None:
        message = "`tls` protects `tcp`; without `listen.tcp` it has no effect"
        yield Problem(file, tls.place, ("listen", "tls"), "no_effect", message)
    bound = descend(root, "listen", "tls", "principals")
    if bound is not None and descend(root, "listen", "tls", "client_ca") is None:
        message = "without `client_ca` no client shows a certificate, and these principals could never call"
        yield Problem(file, bound.place, ("listen", "tls", "principals"), "no_certificate", message)


def certificate_problems(tls: TlsSettings) -> Iterator[tuple[str, str]]:
    """Say what is wrong with the files for TLS: the key below `listen.tls`, and the problem."""
    from cryptography import x509  # noqa: PLC0415 - heavy, and most files need none
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        PublicFormat,
        load_pem_private_key,
    )

    def public(of: "object") -> bytes:
        return of.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined, no-any-return]

    certified, held = b"", b""
    try:
        certified = public(x509.load_pem_x509_certificates(read_pem(tls.cert))[0].public_key())
    except OSError as error:
        yield "cert", f"this file cannot be read: {error.strerror}"
    except ValueError:
        yield "cert", "this file holds no PEM certificate"
    try:
        if fault := key_fault(tls.key.stat(), os.geteuid(), {os.getegid(), *os.getgroups()}):
            yield "key", fault
        held = public(load_pem_private_key(read_pem(tls.key), password=None).public_key())
    except OSError as error:
        yield "key", f"this file cannot be read: {error.strerror}"
    except TypeError:
        yield "key", "this key is encrypted; the gateway has nobody to ask for its password"
    except ValueError:
        yield "key", "this file holds no PEM private key"
    if certified and held and certified != held:
        yield "key", "this key is not that of the certificate in `cert`"
    if tls.client_ca is not None and (problem := authority_problem(tls.client_ca)):
        yield "client_ca", problem


def key_fault(status: os.stat_result, user: int, groups: Collection[int]) -> str:
    """Say why a private key is not safe where it lies; empty when it is.

    Safe is what nobody but the gateway's user and root can read or write. What root prepared for the gateway
    may besides be readable by root's group or one of the gateway's: so are systemd credentials (0440 with an
    access list, shown as the group's right) and keys in the care of a group such as `ssl-cert`. The gateway's
    own file need not be: its user can close it.

    Args:
        status: Of the key's file.
        user: The gateway's.
        groups: The gateway's.
    """
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in {0, user}:
        return f"this key belongs to another user (uid {status.st_uid}), who can change it: chown it to yours"
    if mode & 0o027:
        return f"this key can be read or changed by others (mode {mode:04o}): chmod 600 it"
    prepared = status.st_uid == 0 != user and status.st_gid in {0, *groups}
    if mode & 0o070 and not prepared:
        return f"this key can be read by others (mode {mode:04o}): chmod 600 it"
    return ""


def certificate_doubts(cert: FilePath) -> Iterator[str]:
    """Say why clients refuse the certificate of a file that was checked, whenever they come.

    gRPC's core takes the common name of one without alternative names; other clients, such as Go's, do not.
    """
    from cryptography import x509  # noqa: PLC0415 - heavy, and most files need none

    try:
        extensions = x509.load_pem_x509_certificates(read_pem(cert))[0].extensions
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        yield "the extensions of this certificate cannot be read: clients refuse it"
        return
    found = {type(extension.value): extension.value for extension in extensions}
    if x509.SubjectAlternativeName not in found:
        yield "this certificate has no subject alternative name, without which many clients refuse it"
    uses = found.get(x509.ExtendedKeyUsage)
    if isinstance(uses, x509.ExtendedKeyUsage) and x509.oid.ExtendedKeyUsageOID.SERVER_AUTH not in uses:
        yield "the extended key usage of this certificate lacks serverAuth: clients refuse it"


def certificate_end(cert: FilePath) -> datetime:
    """Return when the certificate of a file that was checked stops being valid."""
    from cryptography import x509  # noqa: PLC0415 - heavy, and most files need none

    return x509.load_pem_x509_certificates(read_pem(cert))[0].not_valid_after_utc


def expiry_warning(cert: FilePath, now: datetime | None = None) -> str:
    """Warn of a certificate that has expired, or will within 30 days; empty otherwise."""
    end = certificate_end(cert)
    left = end - (now or datetime.now(UTC))
    day = end.strftime("%Y-%m-%d %H:%M UTC")
    if left.total_seconds() <= 0:
        return f"the certificate `{cert}` expired at {day}: clients refuse it"
    return f"the certificate `{cert}` expires at {day}" if left.days < EXPIRY_DAYS else ""
