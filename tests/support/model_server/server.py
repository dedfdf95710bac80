"""The scripted model server itself: HTTP/1.1 on loopback, in the event loop of the test.

A scenario is chosen by the address (`/s/NAME`), its steps are played in order, one for each request. Requests
are checked as a strict server would; whatever is wrong with one ends the test when the server is left.
"""

import asyncio
import json
import socket
import ssl
import struct
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from tests.support.model_server import chat_wire, messages_wire
from tests.support.model_server.declared_tools import refusals
from tests.support.model_server.request import Request
from tests.support.model_server.script import (
    Cut,
    Fault,
    Garbage,
    Goodbye,
    Midway,
    Piece,
    Refuse,
    Step,
    TextPiece,
    pieces,
)

PROTOCOLS = ("openai", "anthropic")
KEY = "sk-canary-5f1e7c0a9d"
"""The key that the server accepts."""

_BARRIER_SECONDS = 30.0


class Wire(Protocol):
    """How one step is sent in one protocol."""

    def head(self) -> Iterator[bytes]:
        """What comes before the first piece."""
        ...

    def piece(self, piece: Piece) -> Iterator[bytes]:
        """A piece of text or of a call."""
        ...

    def tail(self) -> Iterator[bytes]:
        """What comes after the last piece, up to the end itself."""
        ...

    def end(self) -> Iterator[bytes]:
        """The protocol's end."""
        ...

    def error(self, kind: str) -> Iterator[bytes]:
        """An error within the stream."""
        ...

    def ping(self) -> bytes:
        """A sign of life."""
        ...

    def refusal(self, status: int) -> str:
        """The body of an error."""
        ...


class ModelServer:
    """Serves while its context is open.

    `requests` holds every model call without its key; `problems` what was wrong with any of them, which the
    end of the context raises as an AssertionError.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """Prepare a server.

        Args:
            tls: Of the server; without one it speaks in the clear.
        """
        self._tls = tls
        self.requests: list[Request] = []
        self.problems: list[str] = []
        self.accepted = Counter[str]()
        """Requests by scenario, refused ones included."""
        self._steps: dict[str, tuple[Step, ...]] = {}
        self._otherwise: dict[str, Step | None] = {}
        self._barriers: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", 0, limit=1024 * 1024, ssl=self._tls
        )
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
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        if error is None:
            assert not self.problems, self.problems

    def play(self, scenario: str, *steps: Step, otherwise: Step | None = None) -> None:
        """Set what a scenario answers, from its first step on.

        Args:
            scenario: Its name.
            steps: One for each request.
            otherwise: Answers every request after them; without it such a request is a problem.
        """
        self._steps[scenario] = steps
        self._otherwise[scenario] = otherwise
        self.accepted[scenario] = 0

    def base_url(self, protocol: str, scenario: str) -> str:
        """Where a model of the protocol is configured to be."""
        suffix = "/v1" if protocol == "openai" else ""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}/s/{scenario}{suffix}"

    def calls(self, scenario: str) -> int:
        """How often the scenario was asked."""
        return self.accepted[scenario]

    def release(self, barrier: str) -> None:
        """Let the steps that wait here go on."""
        self._barriers[barrier].set()

    async def reached(self, barrier: str) -> None:
        """Return when a step waits here."""
        await asyncio.wait_for(self._reached[barrier].wait(), _BARRIER_SECONDS)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip("\r\n").split("\r\n")
        method, path, _ = line.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (item.partition(":") for item in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        authorization = headers.pop("authorization", "")
        _, _, scenario, rest = path.split("/", 3) if path.startswith("/s/") else ("", "", "", path)
        protocol = {chat_wire.PATH: "openai", messages_wire.PATH: "anthropic"}.get(f"/{rest}")
        if method == "GET" and path.endswith("/models"):
            known = authorization == f"Bearer {KEY}"
            listed = json.dumps({"object": "list", "data": [{"id": "made-up-1"}]})
            await _refuse(writer, Refuse(200 if known else 401), listed if known else "{}")
            return
        if method != "POST" or protocol is None or scenario not in self._steps:
            self.problems.append(f"unexpected request: {method} {path}")
            await _refuse(writer, Refuse(404), "{}")
            return
        request = Request(scenario, protocol, headers, json.loads(body))
        self.requests.append(request)
        number = self.accepted[scenario]
        self.accepted[scenario] += 1
        await self._play(request, number, authorization, writer)

    async def _play(
        self, request: Request, number: int, authorization: str, writer: asyncio.StreamWriter
    ) -> None:
        steps, otherwise = self._steps[request.scenario], self._otherwise[request.scenario]
        step = steps[number] if number < len(steps) else otherwise or Step()
        known = number < len(steps) or otherwise is not None
        wires: Mapping[str, Callable[[str, Step], Wire]] = {
            "openai": chat_wire.ChatWire,
            "anthropic": messages_wire.MessagesWire,
        }
        wire = wires[request.protocol](f"{request.scenario}-{number}", step)
        refused = [text for tool in request.declared for text in refusals(*tool)]
        wrong = [*refused, *self._wrong(request, step, known=known)]
        self.problems += [f"{request.scenario}, request {number + 1}: {problem}" for problem in wrong]
        if authorization != f"Bearer {KEY}":
            await _refuse(writer, Refuse(401), wire.refusal(401))
        elif refused:
            await _refuse(writer, Refuse(400), json.dumps({"error": {"message": refused[0]}}))
        elif wrong:
            await _refuse(writer, Refuse(422), wire.refusal(422))
        elif isinstance(step.fault, Refuse):
            await _refuse(writer, step.fault, step.fault.body or wire.refusal(step.fault.status))
        else:
            await self._stream(writer, step, wire)

    def _wrong(self, request: Request, step: Step, *, known: bool) -> Iterator[str]:
        if not known:
            yield "the scenario has no step for it"
        check = chat_wire.problems if request.protocol == "openai" else messages_wire.problems
        yield from check(request)
        yield from step.expect.problems(request)

    async def _stream(self, writer: asyncio.StreamWriter, step: Step, wire: Wire) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n")
        writer.write(b"connection: close\r\n\r\n")
        async for event in self._events(step, wire):
            size = step.drip or len(event)
            for start in range(0, len(event), size):
                part = event[start : start + size]
                writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                await writer.drain()
                if step.drip:
                    await asyncio.sleep(0)
        goodbye = step.fault.goodbye if isinstance(step.fault, Cut) else Goodbye.CLEAN
        if goodbye is Goodbye.CLEAN:
            writer.write(b"0\r\n\r\n")
        elif goodbye is Goodbye.RESET:
            _reset(writer)
        await writer.drain()

    async def _events(self, step: Step, wire: Wire) -> AsyncIterator[bytes]:
        fault = step.fault
        for event in wire.head():
            yield event
        waited = not step.barrier
        for sent, piece in enumerate(pieces(step)):
            if _due(fault, sent):
                break
            if not waited and not isinstance(piece, TextPiece):
                waited = True
                await self._wait(step.barrier)
            for _ in range(step.pings):
                yield wire.ping()
            for event in wire.piece(piece):
                yield event
        if not waited:
            await self._wait(step.barrier)
        for event in _ending(fault, wire):
            yield event

    async def _wait(self, barrier: str) -> None:
        self._reached[barrier].set()
        await asyncio.wait_for(self._barriers[barrier].wait(), _BARRIER_SECONDS)


def _due(fault: Fault | None, sent: int) -> bool:
    after = fault.after if isinstance(fault, Cut | Midway | Garbage) else None
    return after is not None and sent >= after


def _ending(fault: Fault | None, wire: Wire) -> Iterable[bytes]:
    match fault:
        case Cut(after=None):
            return wire.tail()
        case Cut():
            return ()
        case Midway(kind=kind):
            return wire.error(kind)
        case Garbage(data=data):
            return (b"data: " + data + b"\n\n",)
        case _:
            return (*wire.tail(), *wire.end())


async def _refuse(writer: asyncio.StreamWriter, refuse: Refuse, body: str) -> None:
    content = body.encode()
    headers = {"content-type": "application/json", "content-length": str(len(content)), **refuse.headers}
    lines = [f"HTTP/1.1 {refuse.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, "connection: close", "", ""]).encode() + content)
    await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
