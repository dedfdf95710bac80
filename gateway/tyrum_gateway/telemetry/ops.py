"""The operations listener: a few fixed answers over HTTP, for probes and for Prometheus.

Invariants: it listens on loopback only and tells nothing that needs a token; a connection is one bounded
request, one answer and the end, so nobody holds it up.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from tyrum_gateway.domain.errors import StateUnusable, TyrumError

log = structlog.get_logger(__name__)

MAX_HEADER = 8 * 1024
"""Bytes of the longest request that is read."""

SECONDS = 5.0
"""How long one connection may take, its answer included."""

CONNECTIONS = 32
"""Connections that are served at once; one more ends the oldest."""

_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_WORDS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer."""

    status: int
    body: bytes
    kind: str = _TEXT


@dataclass(slots=True)
class Readiness:
    """Whether clients are served as configured."""

    missing: Callable[[], Awaitable[list[str]]]
    """Names what a ready gateway would have and this one lacks."""
    phase: str = "starting"
    """Empty while the gateway serves."""

    async def problems(self) -> list[str]:
        """List what is not ready; nothing when all is."""
        return [self.phase] if self.phase else await self.missing()


@dataclass(slots=True)
class Operations:
    """Answers requests."""

    readiness: Readiness
    metrics: Callable[[], Awaitable[bytes]]
    """Writes the metrics as they are now."""
    _busy: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict, init=False)

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncGenerator[str, None]:
        """Listen while the context is open; yields `HOST:PORT` with the port that was taken.

        Raises:
            StateUnusable: The address cannot be listened on.
        """
        try:
            server = await asyncio.start_server(self._serve, host, port, limit=MAX_HEADER)
        except OSError as error:
            problem = error.strerror or str(error)
            raise StateUnusable(f"cannot listen on `{host}:{port}` (`listen.ops`): {problem}") from error
        bound = server.sockets[0].getsockname()[1]
        try:
            yield f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
        finally:
            server.close()
            # Ended from their other end: a task that is cancelled here would be reported as a failure.
            for writer in self._busy.values():
                writer.transport.abort()
            if self._busy:
                await asyncio.wait(list(self._busy), timeout=SECONDS)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            writer.transport.abort()
            return
        # Who holds connections open keeps no probe out: an answer takes no time, so the oldest dawdles.
        excess = len(self._busy) + 1 - CONNECTIONS
        for oldest in list(self._busy.values())[: max(excess, 0)]:
            oldest.transport.abort()
        self._busy[task] = writer
        try:
            async with asyncio.timeout(SECONDS):
                answer = await self.answer(await _request_line(reader))
                writer.write(_written(answer))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):
            pass  # the other end went away or dawdles: there is nobody to tell
        finally:
            del self._busy[task]
            writer.transport.abort()

    async def answer(self, line: bytes) -> Answer:
        """Answer a request by its first line."""
        method, _, rest = line.partition(b" ")
        path, _, version = rest.rpartition(b" ")
        if not version.startswith(b"HTTP/1."):
            return Answer(400, b"only HTTP/1 is spoken here\n")
        if method != b"GET":
            return Answer(405, b"only GET\n")
        match path.partition(b"?")[0]:
            case b"/livez":
                return Answer(200, b"ok\n")
            case b"/readyz":
                problems = await self.readiness.problems()
                text = "".join(f"{problem}\n" for problem in problems) or "ok\n"
                return Answer(503 if problems else 200, text.encode())
            case b"/metrics":
                return await self._measured()
            case _:
                return Answer(404, b"/livez, /readyz or /metrics\n")

    async def _measured(self) -> Answer:
        try:
            return Answer(200, await self.metrics(), _METRICS)
        except TyrumError as error:
            log.warning("metrics_failed", reason=error.public, **error.context)
            return Answer(500, b"the gateway's log says why\n")


async def _request_line(reader: asyncio.StreamReader) -> bytes:
    """Read a request's head and return its first line; empty when it is none."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""
    return head.partition(b"\r\n")[0]


def _written(answer: Answer) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {_WORDS[answer.status]}\r\n"
        f"Content-Type: {answer.kind}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + answer.body
