"""The provider's end of the conversation with one supervisor.

Invariant: everything a caller awaits here ends when the supervisor does, one way or the other.
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from tyrum_local_spawn.supervision.frames import Frame, FrameError, Kind, Splitter, pack
from tyrum_local_spawn.supervision.order import Order, to_head
from tyrum_local_spawn.supervision.record import Cause, DamagedRecord, ExitRecord, Refusal, decode_exit

_RECEIVE_BYTES: Final = 64 * 1024

_Value = TypeVar("_Value")


class SupervisorGone(Exception):
    """The supervisor does not answer any more: the run has ended, or its record must be asked."""


class SupervisorEnded(SupervisorGone):
    """No process holds the other end any more: what is not recorded by now never will be."""


@dataclass(frozen=True, slots=True)
class Started:
    """The command executes."""

    started_at_ns: int
    leader: int | None
    """Process id of the command; None when it has ended already."""


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
    """A connection over which one order is given and one run observed; it owns its socket.

    The event loop calls it when the socket is ready, without streams or tasks between: they would show in the
    time of a short command.
    """

    def __init__(self, channel: socket.socket, on_end: Callable[[ExitRecord], None]) -> None:
        """Speak over a connected socket; `on_end` gets the durable record of the run once it is there."""
        channel.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._splitter = Splitter()
        self._unsent = bytearray()
        self._outcome: asyncio.Future[Started | NotStarted | None] = self._loop.create_future()
        self._on_end = on_end
        self._over = asyncio.Event()
        self._reads: dict[int, asyncio.Future[Chunk]] = {}
        self._next_request = 0
        self._gone = False
        self._ended = False
        self._loop.add_reader(channel, self._receive)

    @property
    def open(self) -> bool:
        """Whether the conversation goes on."""
        return not self._gone

    def give(self, order: Order) -> None:
        """Send the order; it waits in the socket until a supervisor takes the other end."""
        self._send(Kind.START, to_head(order), order.stdin)

    async def outcome(self) -> Started | NotStarted:
        """Return what became of the order.

        Raises:
            SupervisorEnded: it ended without a word; whether the command ran is for the records to say.
            SupervisorGone: the link was closed on this side, and a supervisor may still be there.
        """
        outcome = await self._outcome
        if outcome is None:
            raise SupervisorEnded if self._ended else SupervisorGone
        return outcome

    async def over(self) -> None:
        """Return when the conversation is over: the run has ended, or its supervisor is gone."""
        await self._over.wait()

    async def read(self, stream: int, offset: int, limit: int, *, wait: bool) -> Chunk:
        """Read output, waiting for bytes after `offset` if asked to.

        Raises:
            SupervisorGone: the run has ended; its spool is on disk.
        """
        if self._gone:
            raise SupervisorGone
        self._next_request += 1
        request = self._next_request
        answer: asyncio.Future[Chunk] = self._loop.create_future()
        self._reads[request] = answer
        try:
            self._send(
                Kind.READ,
                {"request": request, "stream": stream, "offset": offset, "limit": limit, "wait": wait},
            )
            return await answer
        finally:
            self._reads.pop(request, None)
            if answer.cancelled() and not self._gone:
                self._send(Kind.FORGET, {"request": request})

    def cancel(self, cause: Cause, grace: float | None) -> None:
        """Ask for the end of the tree: SIGTERM, then SIGKILL after `grace` seconds (None: the order's)."""
        if not self._gone:
            self._send(Kind.CANCEL, {"cause": cause, "grace": grace})

    def close(self) -> None:
        """Hang up: a supervisor that still runs its command kills it, whoever waits gets SupervisorGone."""
        if self._gone:
            return
        self._gone = True
        self._loop.remove_reader(self._channel)
        self._loop.remove_writer(self._channel)
        self._channel.close()
        _tell(self._outcome, None)
        self._over.set()
        for answer in self._reads.values():
            if not answer.done():
                answer.set_exception(SupervisorGone())

    def _receive(self) -> None:
        try:
            data = self._channel.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""  # the last holder of the other end closed it with some of the order unread
        except OSError:
            self.close()
            return
        self._ended = not data
        try:
            for frame in self._splitter.feed(data):
                if not self._gone:
                    self._take(frame)
        except (FrameError, DamagedRecord):
            data = b""  # what a supervisor of this build never says: the disk tells what is true
        if not data:
            self.close()

    def _take(self, frame: Frame) -> None:
        head = frame.head
        match frame.kind:
            case Kind.STARTED:
                _tell(self._outcome, Started(head["started_at_ns"], head["leader"]))
            case Kind.REFUSED:
                refused = NotStarted(
                    refusal=Refusal(head["refusal"]),
                    message=head["message"],
                    field=head["field"],
                    record=decode_exit(frame.blob) if frame.blob else None,
                )
                _tell(self._outcome, refused)
            case Kind.CHUNK:
                self._deliver(frame)
            case Kind.ENDED:
                end = decode_exit(frame.blob)
                self._on_end(end)
                _tell(self._outcome, Started(end.started_at_ns, None))  # a short run has no other word for it
                self.close()
            case _:
                raise FrameError(f"a supervisor does not send {frame.kind.name}")

    def _deliver(self, frame: Frame) -> None:
        head = frame.head
        answer = self._reads.get(head["request"])
        if answer is not None:
            _tell(answer, Chunk(head["offset"], frame.blob, head["dropped_before"], head["total"]))

    def _send(self, kind: Kind, head: dict[str, object], blob: bytes = b"") -> None:
        self._unsent += pack(kind, head, blob)
        self._flush()

    def _flush(self) -> None:
        try:
            sent = self._channel.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._unsent.clear()  # what the supervisor said before it went is still to be read
            sent = 0
        del self._unsent[:sent]
        if self._unsent:
            self._loop.add_writer(self._channel, self._flush)
        else:
            self._loop.remove_writer(self._channel)


def _tell(future: asyncio.Future[_Value], value: _Value) -> None:
    """Set a result unless nobody waits for it any more."""
    if not future.done():
        future.set_result(value)
