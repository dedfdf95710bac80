"""A request through a forward proxy: how far it came, and what stopped it on the way.

Invariant: of a proxy's words only a status leaves here. Until a tunnel stands time is bounded, and what goes
wrong is the proxy's; from then on everything is the server's.
"""

import asyncio
import re
import ssl
from collections.abc import Callable

import anyio
import httpx2

from tyrum_gateway.models.endpoint import Proxy
from tyrum_gateway.models.reaching import causes

TUNNEL_SECONDS = 30.0
"""From the request to the tunnel; a proxy looks the server up and connects to it meanwhile."""

_UNANSWERED = (httpx2.TransportError, OSError, anyio.EndOfStream)
_BEYOND = {"https": "proxy.start_tls.started", "http": "http11.send_request_headers.started"}
"""What is told when the proxy was reached and, for a server with TLS, has let the request through."""


class ProxyFailed(httpx2.TransportError):
    """A proxy did not lead to the server."""

    def __init__(self, *, status: int | None = None, untrusted: bool = False) -> None:
        super().__init__("the proxy did not lead to the server")
        self.status = status
        """What it answered; None: it could not be asked."""
        self.untrusted = untrusted
        """Whether its certificate was not accepted."""


class _Passage:
    """How far one request came."""

    def __init__(self, scheme: str, limit: asyncio.Timeout) -> None:
        self._awaited = _BEYOND[scheme]
        self._limit = limit
        self.beyond = False

    async def note(self, event: str, _: object) -> None:
        """Take what the library tells of its work."""
        if event == self._awaited:
            self.beyond = True
            self._limit.reschedule(None)


def forward(proxy: Proxy, login: tuple[str, str] | None, trust: Callable[[], ssl.SSLContext]) -> httpx2.Proxy:
    """Describe a proxy to the library.

    Args:
        proxy: The operator's.
        login: User and password; None shows it nothing.
        trust: Whom to trust as the proxy; only asked when the proxy is, over TLS.
    """
    return httpx2.Proxy(proxy.url, auth=login, ssl_context=trust() if proxy.tls else None)


async def ask_through(transport: httpx2.AsyncHTTPTransport, request: httpx2.Request) -> httpx2.Response:
    """Send a request by a transport that leads through a proxy.

    Raises:
        ProxyFailed: The proxy cannot be reached, is not trusted, or refuses.
        httpx2.TransportError: The server behind it gave no answer.
    """
    scheme = request.url.scheme
    try:
        async with asyncio.timeout(TUNNEL_SECONDS) as limit:
            passage = _Passage(scheme, limit)
            request.extensions = {**request.extensions, "trace": passage.note}
            response = await transport.handle_async_request(request)
    except TimeoutError:
        raise ProxyFailed from None
    except httpx2.ProxyError as error:
        raise ProxyFailed(status=_status(error)) from None
    except _UNANSWERED as error:
        if passage.beyond:
            raise
        untrusted = any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes(error))
        raise ProxyFailed(untrusted=untrusted) from None
    if response.status_code == 407 and scheme == "http":
        await response.aclose()
        raise ProxyFailed(status=407)
    return response


def _status(error: httpx2.ProxyError) -> int | None:
    """Read the status with which the library begins its text; the rest is the proxy's."""
    found = re.match(r"[1-9][0-9]{2}\b", str(error))
    return int(found[0]) if found else None
