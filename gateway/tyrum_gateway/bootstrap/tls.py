"""From the files of `listen.tls` to the server's certificate, read once at the start."""

from pathlib import Path

import structlog

from tyrum_gateway.config.listening import expiry_warning
from tyrum_gateway.config.settings import TlsSettings
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.rpc.server import ServerCertificate

log = structlog.get_logger(__name__)


def server_certificate(tls: TlsSettings | None) -> ServerCertificate | None:
    """Read what the configuration's check has found to fit together, and warn when it expires soon.

    Raises:
        StateUnusable: A file is gone since the check.
    """
    if tls is None:
        return None
    certificate = ServerCertificate(
        chain=_read(tls.cert),
        key=_read(tls.key),
        client_ca=None if tls.client_ca is None else _read(tls.client_ca),
    )
    if warning := expiry_warning(tls.cert):
        log.warning("certificate_expires", reason=warning)
    return certificate


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StateUnusable(f"cannot read `{path}`: {error.strerror}") from error
