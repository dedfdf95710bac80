"""The one way out to a model's server: one origin, our headers, bounded answers, nothing of the environment.

Invariant: a request leaves with the headers listed here and the key of its model, and goes to the configured
origin, whatever the SDK above, its environment variables or the server's redirects say; also through a proxy.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path

import anyio
import httpx2

from tyrum_gateway.models.endpoint import Credentials, Endpoint
from tyrum_gateway.models.forward_proxy import ask_through, forward

MAX_ERROR_BYTES = 64 * 1024
"""What is read of an answer that is no stream."""
ERROR_SECONDS = 5.0
"""How long is waited for that."""
CONNECT_SECONDS = 10.0
SEND_SECONDS = 30.0

BROKEN = (httpx2.HTTPError, OSError, anyio.EndOfStream)
"""What reading an answer raises when its connection ends; the last is one that httpx2 does not translate."""

_HEADERS = frozenset({"host", "content-type", "content-length", "anthropic-version"})
"""What an SDK sets and a server needs; the rest tells about the machine, or came from the environment."""


class ForeignOrigin(httpx2.UnsupportedProtocol):
    """A request was about to go elsewhere than to the configured server."""


class Encoded(httpx2.RemoteProtocolError):
    """An answer is compressed, which was not asked for and would undo every bound."""


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests of one step, each over a connection of its own."""

    def __init__(
        self, *, base_url: str, key: str, agent: str, trust: ssl.SSLContext, proxy: httpx2.Proxy | None = None
    ) -> None:
        """Prepare the way.

        Args:
            base_url: Of the configured server.
            key: Goes into every request to the server, and nowhere else.
            agent: The user agent.
            trust: Whom to trust as the server, also through a proxy.
            proxy: Leads to the server; None reaches it directly.
        """
        url = httpx2.URL(base_url)
        self._origin = (url.scheme, url.host, url.port)
        self._ours = {
            "authorization": f"Bearer {key}",
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "user-agent": agent,
        }
        self._through_proxy = proxy is not None
        self._inner = httpx2.AsyncHTTPTransport(
            verify=trust,
            trust_env=False,
            proxy=proxy,
            limits=httpx2.Limits(max_connections=1, max_keepalive_connections=0),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request.

        Raises:
            ForeignOrigin: It is not for the configured server.
            Encoded: The answer is compressed.
            ProxyFailed: The proxy did not lead to the server.
        """
        url = request.url
        if (url.scheme, url.host, url.port) != self._origin:
            raise ForeignOrigin("not the configured server")
        kept = {name: value for name, value in request.headers.items() if name.lower() in _HEADERS}
        # A copy: the SDK keeps notes to itself in the headers of its own.
        outgoing = httpx2.Request(
            request.method,
            url,
            headers=kept | self._ours,
            stream=request.stream,
            extensions=request.extensions,
        )
        if self._through_proxy:
            response = await ask_through(self._inner, outgoing)
        else:
            response = await self._inner.handle_async_request(outgoing)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise Encoded("a compressed answer")
        if not response.is_success and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Bounded(response.stream)
            # The SDK decodes it with whatever codec a charset names, also such that raise or inflate.
            response.headers["content-type"] = "application/json"
        return response

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """The beginning of an error's body, so far as it comes soon: its status is known, and says more."""

    def __init__(self, whole: httpx2.AsyncByteStream) -> None:
        self._whole = whole

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left, chunks = MAX_ERROR_BYTES, aiter(self._whole)
        until = asyncio.get_running_loop().time() + ERROR_SECONDS
        while left > 0:
            try:
                async with asyncio.timeout_at(until):
                    chunk = await anext(chunks)
            except (StopAsyncIteration, TimeoutError, *BROKEN):
                return
            yield chunk[:left]
            left -= len(chunk)

    async def aclose(self) -> None:
        await self._whole.aclose()


def http_client(endpoint: Endpoint, credentials: Credentials, trust: ssl.SSLContext) -> httpx2.AsyncClient:
    """Make the client of one step.

    Args:
        endpoint: The configured server.
        credentials: What its secrets hold now.
        trust: Whom to trust as the server.
    """
    proxy = endpoint.proxy
    transport = GuardedTransport(
        base_url=endpoint.base_url,
        key=credentials.key,
        agent=endpoint.agent,
        trust=trust,
        proxy=None if proxy is None else forward(proxy, credentials.login, _system_trust),
    )
    return httpx2.AsyncClient(
        transport=transport,
        follow_redirects=False,
        trust_env=False,
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS, write=SEND_SECONDS, pool=CONNECT_SECONDS),
    )


def trust(ca_file: Path | None) -> ssl.SSLContext:
    """Trust the authorities of a file and nobody else, or what the operating system trusts.

    Raises:
        OSError: The file cannot be read, or holds no certificate.
    """
    if ca_file is None:
        return _system_trust()
    # Unlike the library's default context, one of these takes nothing from the environment.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=ca_file)
    return context


@cache
def _system_trust() -> ssl.SSLContext:
    """Trust what the operating system trusts; read once, like the rest of the configuration."""
    return httpx2.create_ssl_context(trust_env=False)
