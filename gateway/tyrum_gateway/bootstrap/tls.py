"""From the files of `listen.tls` to the server's certificate, looked at again for each new connection.

Invariant: what is served was found to fit together; until the files do again, what was served before stays.
"""

import threading
from pathlib import Path

import structlog

from tyrum_gateway.config.authorities import read_pem
from tyrum_gateway.config.listening import certificate_problems, expiry_warning
from tyrum_gateway.config.settings import TlsSettings
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.rpc.server import ServerCertificate

log = structlog.get_logger(__name__)

_FIX = "put files there that fit together: the next connection looks again, and has the old ones until then"

_Look = tuple[bytes, int, int, int] | None
"""What a file holds, its mode and whose it is; None when it cannot be read."""


class CertificateFiles:
    """The certificate of `listen.tls`; safe to ask in any thread.

    The files are small, and read for each connection: their times do not tell two quick changes apart.
    """

    def __init__(self, tls: TlsSettings) -> None:
        """Read what the configuration's check has found to fit together, and warn when it expires soon.

        Raises:
            StateUnusable: A file is gone since the check.
        """
        self._tls = tls
        self._lock = threading.Lock()
        self._seen = self._look()
        found = _certificate(self._seen)
        if found is None:
            raise StateUnusable("a file that `listen.tls` names cannot be read any more")
        self.current = found
        if warning := expiry_warning(tls.cert):
            log.warning("certificate_expires", reason=warning)

    def renewed(self) -> ServerCertificate | None:
        """Look at the files, and return what they hold now when that is new and can be served.

        Otherwise None, and the reason is logged once for each state of the files.
        """
        with self._lock:
            seen = self._look()
            if seen == self._seen:
                return None
            problem, warning = self._judged()
            if seen != self._look():
                return None  # somebody still writes them
            self._seen = seen
            found = _certificate(seen)
            if problem or found is None:
                log.error("certificate_not_renewed", reason=problem, fix=_FIX)
                return None
            self.current = found
            log.info("certificate_renewed", file=str(self._tls.cert))
            if warning:
                log.warning("certificate_expires", reason=warning)
            return found

    def _judged(self) -> tuple[str, str]:
        """Say why the files cannot be served, and warn of the certificate's end."""
        try:
            for key, problem in certificate_problems(self._tls):
                return f"listen.tls.{key}: {problem}", ""
            return "", expiry_warning(self._tls.cert)
        except Exception as error:  # noqa: BLE001 - whatever a file holds, connections go on
            return f"{type(error).__name__}: {error}", ""

    def _look(self) -> list[_Look]:
        tls = self._tls
        return [_look(file) for file in (tls.cert, tls.key, tls.client_ca) if file is not None]


def _certificate(looks: list[_Look]) -> ServerCertificate | None:
    contents = [look[0] for look in looks if look is not None]
    if len(contents) < len(looks):
        return None
    return ServerCertificate(contents[0], contents[1], contents[2] if len(contents) > 2 else None)


def _look(path: Path) -> _Look:
    try:
        status = path.stat()
        return read_pem(path), status.st_mode, status.st_uid, status.st_gid
    except OSError:
        return None
