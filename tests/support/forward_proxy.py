"""A small forward proxy on loopback, in the loop of the test: CONNECT, and requests in absolute form."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to the proxy."""

    line: str
    """Without the version."""
    headers: Mapping[str, str]
    """Names in lower case."""


class ForwardProxy:
    """Leads to whatever it is asked for while its context is open."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        login: str | None = None,
        refuse: bytes = b"",
        silent: bool = False,
    ) -> None:
        """Prepare a proxy.

        Args:
            tls: Of the proxy; without one it speaks in the clear.
            login: `USER:PASSWORD` that it demands.
            refuse: Sent instead of the server's answer, as it is.
            silent: Whether it never answers.
        """
        self._tls = tls
        self._login = None if login is None else f"Basic {base64.b64encode(login.encode()).decode()}"
        self._refuse = refuse
        self._silent = silent
        self.asked: list[Asked] = []
        """Every request, refused ones included."""
        self._connections: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def address(self) -> str:
        """`HOST:PORT`."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """As a model is configured with it."""
        return f"{'https' if self._tls else 'http'}://{self.address}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.transport.abort()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                async with self._opened(writer):
                    await self._lead(reader, writer)
        finally:
            self._connections.discard(task)

    @asynccontextmanager
    async def _opened(self, writer: asyncio.StreamWriter) -> AsyncIterator[asyncio.StreamWriter]:
        self._open.add(writer)
        try:
            yield writer
        finally:
            self._open.discard(writer)
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip("\r\n").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (item.partition(":") for item in lines)}
        method, target, _ = line.split(" ")
        self.asked.append(Asked(f"{method} {target}", headers))
        if self._silent:
            await reader.read()
        elif self._login is not None and headers.get("proxy-authorization") != self._login:
            writer.write(answer(407))
        elif self._refuse:
            writer.write(self._refuse)
        elif method == "CONNECT":
            host, _, port = target.rpartition(":")
            await self._pipe(
                reader, writer, (host, int(port)), established=b"HTTP/1.1 200 Established\r\n\r\n"
            )
        else:
            server, _, path = target.removeprefix("http://").partition("/")
            host, _, port = server.rpartition(":")
            kept = (f"{name}: {value}" for name, value in headers.items() if not name.startswith("proxy-"))
            request = "\r\n".join([f"{method} /{path} HTTP/1.1", *kept, "", ""]).encode("latin-1")
            await self._pipe(reader, writer, (host, int(port)), request=request)
        await writer.drain()

    async def _pipe(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server: tuple[str, int],
        *,
        established: bytes = b"",
        request: bytes = b"",
    ) -> None:
        """Carry bytes both ways until the server has said everything."""
        inward, outward = await asyncio.open_connection(*server)
        async with self._opened(outward):
            writer.write(established)
            outward.write(request)
            asking = asyncio.ensure_future(_copy(reader, outward))
            try:
                await _copy(inward, writer)
            finally:
                asking.cancel()
                await asyncio.wait([asking])


def answer(status: int, *headers: str) -> bytes:
    """Write an answer of the proxy itself, with words that nobody is to repeat."""
    lines = [f"HTTP/1.1 {status} CANARY of the proxy", *headers, "content-length: 6", "", "CANARY"]
    return "\r\n".join(lines).encode()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while some := await source.read(64 * 1024):
            target.write(some)
            await target.drain()
