"""The provider's end of the conversation with one supervisor.

Invariant: everything a caller awaits here ends when the supervisor does, one way or the other.
"""

import asyncio
import socket
from dataclasses import dataclass

from tyrum_local_spawn.supervision.frames import PREFIX_BYTES, Frame, Kind, body_bytes, pack, unpack
from tyrum_local_spawn.supervision.order import Order, to_head
from tyrum_local_spawn.supervision.record import Cause, ExitRecord, Refusal, decode_exit


class SupervisorGone(Exception):
    """The supervisor does not answer any more: the run has ended, or its record must be asked."""


@dataclass(frozen=True, slots=True)
class Started:
    """The command executes."""

    started_at_ns: int
    leader: int
    """Process id of the command."""


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The command did not execute and never will."""

    refusal: Refusal
    message: str
    field: str
    record: ExitRecord | None
    """Present when the operation had been recorded before the start failed."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Output that was read, and how much there is in all at that moment."""

    offset: int
    data: bytes
    dropped_before: int
    total: int


class SupervisorLink:
    """A connection over which one order is given and one run observed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._reads: dict[int, asyncio.Future[Chunk]] = {}
        self._next_request = 0
        self._gone = False

    @classmethod
    async def open(cls, channel: socket.socket) -> "SupervisorLink":
        """Speak over a connected socket, which the link then owns."""
        reader, writer = await asyncio.open_unix_connection(sock=channel)
        return cls(reader, writer)

    def give(self, order: Order) -> None:
        """Send the order; it waits in the socket until a supervisor takes the other end."""
        self._send(Kind.START, to_head(order), order.stdin)

    async def outcome(self) -> Started | NotStarted:
        """Return what became of the order.

        Raises:
            SupervisorGone: it ended without a word; whether the command ran is for the records to say.
        """
        frame = await self._receive()
        match frame.kind:
            case Kind.STARTED:
                return Started(frame.head["started_at_ns"], frame.head["leader"])
            case Kind.REFUSED:
                return NotStarted(
                    refusal=Refusal(frame.head["refusal"]),
                    message=frame.head["message"],
                    field=frame.head["field"],
                    record=decode_exit(frame.blob) if frame.blob else None,
                )
            case _:
                raise SupervisorGone

    async def watch(self) -> ExitRecord:
        """Serve the answers of a started run until it ends, and return its durable record.

        Raises:
            SupervisorGone: the supervisor ended without reporting a record.
        """
        try:
            while True:
                frame = await self._receive()
                match frame.kind:
                    case Kind.CHUNK:
                        self._deliver(frame)
                    case Kind.ENDED:
                        return decode_exit(frame.blob)
                    case _:
                        raise SupervisorGone
        finally:
            self.close()

    async def read(self, stream: int, offset: int, limit: int, *, wait: bool) -> Chunk:
        """Read output, waiting for bytes after `offset` if asked to.

        Raises:
            SupervisorGone: the run has ended; its spool is on disk.
        """
        if self._gone:
            raise SupervisorGone
        self._next_request += 1
        request = self._next_request
        answer: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()
        self._reads[request] = answer
        try:
            self._send(
                Kind.READ,
                {"request": request, "stream": stream, "offset": offset, "limit": limit, "wait": wait},
            )
            return await answer
        finally:
            del self._reads[request]
            if answer.cancelled() and not self._gone:
                self._send(Kind.FORGET, {"request": request})

    def cancel(self, cause: Cause, grace: float | None) -> None:
        """Ask for the end of the tree: SIGTERM, then SIGKILL after `grace` seconds (None: the order's)."""
        if not self._gone:
            self._send(Kind.CANCEL, {"cause": cause, "grace": grace})

    def close(self) -> None:
        """Hang up; a supervisor that still runs its command kills it."""
        self._gone = True
        self._writer.close()
        for answer in self._reads.values():
            if not answer.done():
                answer.set_exception(SupervisorGone())

    def _deliver(self, frame: Frame) -> None:
        answer = self._reads.get(frame.head["request"])
        if answer is not None and not answer.done():
            answer.set_result(
                Chunk(
                    offset=frame.head["offset"],
                    data=frame.blob,
                    dropped_before=frame.head["dropped_before"],
                    total=frame.head["total"],
                )
            )

    def _send(self, kind: Kind, head: dict[str, object], blob: bytes = b"") -> None:
        self._writer.write(pack(kind, head, blob))

    async def _receive(self) -> Frame:
        try:
            prefix = await self._reader.readexactly(PREFIX_BYTES)
            return unpack(prefix, await self._reader.readexactly(body_bytes(prefix)))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise SupervisorGone from error
