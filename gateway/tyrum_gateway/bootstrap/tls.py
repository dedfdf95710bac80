"""From the files of `listen.tls` to the server's certificate, read again when they have changed.

Invariant: what is served was found to fit together; until the files do again, what was served before stays.
"""

import threading
from pathlib import Path

import structlog

from tyrum_gateway.config.listening import certificate_end, certificate_problems, expiry_warning
from tyrum_gateway.config.settings import TlsSettings
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.rpc.server import ServerCertificate

log = structlog.get_logger(__name__)

_FIX = "put files there that fit together: the next connection looks again, and has the old ones until then"

_Stamp = tuple[int, int, int] | None


class CertificateFiles:
    """The certificate of `listen.tls`; safe to ask in any thread."""

    def __init__(self, tls: TlsSettings) -> None:
        """Read what the configuration's check has found to fit together, and warn when it expires soon.

        Raises:
            StateUnusable: A file is gone since the check.
        """
        self._tls = tls
        self._files = [tls.cert, tls.key, *([] if tls.client_ca is None else [tls.client_ca])]
        self._lock = threading.Lock()
        self._seen = self._stamps()
        self.current = self._read()
        self._warn()

    def renewed(self) -> ServerCertificate | None:
        """Look at the files, and return what they hold now when that is new and can be served.

        Otherwise None, and the reason is logged once for each state of the files.
        """
        with self._lock:
            stamps = self._stamps()
            if stamps == self._seen:
                return None
            found, problem = self._checked()
            if stamps != self._stamps():
                return None  # somebody still writes them
            self._seen = stamps
            if found is None:
                log.error("certificate_not_renewed", reason=problem, fix=_FIX)
                return None
            self.current = found
            log.info("certificate_renewed", until=certificate_end(self._tls.cert).isoformat())
            self._warn()
            return found

    def _checked(self) -> tuple[ServerCertificate | None, str]:
        try:
            for key, problem in certificate_problems(self._tls):
                return None, f"listen.tls.{key}: {problem}"
            return self._read(), ""
        except Exception as error:  # noqa: BLE001 - whatever a file holds, connections go on
            return None, f"{type(error).__name__}: {error}"

    def _warn(self) -> None:
        if warning := expiry_warning(self._tls.cert):
            log.warning("certificate_expires", reason=warning)

    def _read(self) -> ServerCertificate:
        client_ca = self._tls.client_ca
        return ServerCertificate(
            chain=_read(self._tls.cert),
            key=_read(self._tls.key),
            client_ca=None if client_ca is None else _read(client_ca),
        )

    def _stamps(self) -> list[_Stamp]:
        return [_stamp(file) for file in self._files]


def _stamp(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StateUnusable(f"cannot read `{path}`: {error.strerror}") from error
