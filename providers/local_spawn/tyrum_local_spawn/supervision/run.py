"""The life of a command: its output, its limits, its end.

Invariants: the first cause wins and is set before anything is killed; the loop waits on all of its events at
once and does bounded work for each, so that no flood holds up a timer; the leader is reaped last, so that
its process group cannot be mistaken. A foreground run dies with the provider: the end of the socket kills the
tree.
"""

import contextlib
import mmap
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from tyrum_local_spawn.supervision import tree
from tyrum_local_spawn.supervision.frames import MAX_CHUNK_BYTES, Frame, FrameError, Kind, Splitter, pack
from tyrum_local_spawn.supervision.order import Order
from tyrum_local_spawn.supervision.pipes import OutputPipe, Wanted
from tyrum_local_spawn.supervision.record import Cause, ExitRecord
from tyrum_local_spawn.supervision.workplace import Workplace

SHORT_SECONDS: Final = 0.005
"""How long a command runs before its start is announced; the end of a shorter one says everything."""
LINGER_SECONDS: Final = 0.1
"""How long descendants may finish after the leader ended by itself."""
GIVE_UP_SECONDS: Final = 5.0
"""How long a tree is chased with SIGKILL before the record says that it was not empty."""
_SWEEP_SECONDS: Final = 0.01
_FAREWELL_SECONDS: Final = 5.0
_READ_BYTES: Final = 1024 * 1024
_RECEIVE_BYTES: Final = 64 * 1024
_UNSENT_BYTES: Final = 1024 * 1024
"""Readers wait for their answers while more than this waits for the provider to take it."""


class Run:
    """One executing command."""

    def __init__(  # noqa: PLR0917 - called once
        self,
        order: Order,
        provider: socket.socket,
        splitter: Splitter,
        leader: int,
        streams: tuple[OutputPipe, ...],
        wakeup: int,
        recorded_at_ns: int,
        leave_pool: Callable[[], None],
    ) -> None:
        self._order = order
        self._provider: socket.socket | None = provider
        self._splitter = splitter
        self._leader = leader
        self._pidfd = os.pidfd_open(leader)
        self._streams = streams
        self._wakeup = wakeup
        self._leave_pool = leave_pool
        self.announced = False
        """Whether provider and spawner were told that the command runs."""

        self._began = time.monotonic()
        self._began_at_ns = recorded_at_ns
        self._ended = self._began
        self._cause: Cause | None = None
        self._status: tuple[int | None, int | None] | None = None
        self._kill_at: float | None = None
        self._give_up_at: float | None = None
        self._tree_empty = False
        self._descendants_killed = False

        # Mapped, not allocated: what a command does not write costs no memory and no time to clear it.
        self._buffer = memoryview(mmap.mmap(-1, _READ_BYTES))
        self._unsent = bytearray()
        self._deferred: deque[tuple[OutputPipe, Wanted]] = deque()
        self._poll = select.poll()
        provider.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._poll.register(provider, select.POLLIN | select.POLLRDHUP)
        self._poll.register(self._pidfd, select.POLLIN)
        self._poll.register(wakeup, select.POLLIN)
        for stream in streams:
            self._poll.register(stream.fd, select.POLLIN)

    def loop(self) -> None:
        """Serve the run until its tree is gone, or cannot be ended in time."""
        self._obey(b"")
        while not self._finished():
            now = time.monotonic()
            for fd, events in self._poll.poll(self._patience(now)):
                self._serve(fd, events)
            self._check_limits(time.monotonic())
        for stream in self._streams:
            stream.drain(self._buffer)

    def conclude(self, workplace: Workplace) -> bytes:
        """Record how the run ended, and return the record's bytes.

        On a full disk the spools make room for it, and if that is not enough the evidence stays out.
        """
        with contextlib.suppress(OSError):
            return workplace.conclude(self._record())
        for stream in self._streams:
            stream.spool.give_up()
        with contextlib.suppress(OSError):
            return workplace.conclude(self._record())
        return workplace.conclude(self._record().without_evidence())

    def _record(self) -> ExitRecord:
        if self._status is None:
            self._ended = time.monotonic()
        code, number = self._status or (None, None)
        stdout, stderr = self._streams
        return ExitRecord(
            cause=self._cause or Cause.LOST,
            exit_code=code,
            signal=number,
            started_at_ns=self._began_at_ns,
            ended_at_ns=time.time_ns(),
            duration_ns=int((self._ended - self._began) * 1e9),
            stdout=stdout.spool.end(),
            stderr=stderr.spool.end(),
            tree_empty=self._tree_empty,
            descendants_killed=self._descendants_killed,
        )

    def farewell(self, data: bytes) -> None:
        """Send what is left, then `data`; a provider that does not take it reads the record instead."""
        if self._provider is not None:
            with contextlib.suppress(OSError):
                self._provider.settimeout(_FAREWELL_SECONDS)
                self._provider.sendall(self._unsent + data)

    def _serve(self, fd: int, events: int) -> None:
        if self._provider is not None and fd == self._provider.fileno():
            self._talk(events)
        elif fd == self._pidfd:
            self._leader_ended()
        elif fd == self._wakeup:
            self._woken()
        else:
            stream = next(stream for stream in self._streams if stream.fd == fd)
            now = time.monotonic()
            stream.pump(self._buffer, now)
            if not stream.open:
                self._poll.unregister(fd)

    def _patience(self, now: float) -> float | None:
        """Return how many milliseconds the loop may wait for an event."""
        moments = [
            moment for stream in self._streams if (moment := stream.flush_at) is not None and stream.waiting
        ]
        if not self.announced:
            moments.append(self._began + SHORT_SECONDS)
        if self._cause is None:
            moments.append(self._began + self._order.wall_time)
        if self._kill_at is not None:
            moments.append(self._kill_at)
        if self._status is not None or self._give_up_at is not None:
            moments.append(now + _SWEEP_SECONDS)
        return None if not moments else max(0.0, (min(moments) - now) * 1000)

    def _announce(self) -> None:
        self.announced = True
        self._send(pack(Kind.STARTED, {"started_at_ns": self._began_at_ns, "leader": self._leader}))
        self._leave_pool()

    def _check_limits(self, now: float) -> None:
        if not self.announced and now >= self._began + SHORT_SECONDS:
            self._announce()
        if self._cause is None and now >= self._began + self._order.wall_time:
            self._end(Cause.WALL_TIME, self._order.kill_grace, now)
        total = sum(stream.spool.total for stream in self._streams)
        if self._cause is None and total > self._order.output_bytes:
            self._end(Cause.OUTPUT_LIMIT, self._order.kill_grace, now)
        for stream in self._streams:
            for wanted in stream.due(now):
                self._answer(stream, wanted)
        while self._deferred and len(self._unsent) <= _UNSENT_BYTES:
            self._answer(*self._deferred.popleft())
        if self._kill_at is not None and now >= self._kill_at:
            self._kill(now)

    def _end(self, cause: Cause, grace: float, now: float) -> None:
        """Ask the tree to end, and set the moment from which it is killed; an earlier cause stays."""
        if self._cause is None:
            self._cause = cause
        if self._kill_at is None or now + grace < self._kill_at:
            self._kill_at = now + grace
        if grace > 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._leader, signal.SIGTERM)

    def _kill(self, now: float) -> None:
        """Kill the group and every descendant that can be found; called again until the tree is gone."""
        if self._give_up_at is None:
            self._give_up_at = now + GIVE_UP_SECONDS
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader, signal.SIGKILL)
        found = tree.kill_descendants(os.getpid(), spare={self._leader} if self._status is not None else ())
        if found and self._cause in {Cause.EXITED, Cause.SIGNALED}:
            self._descendants_killed = True

    def _leader_ended(self) -> None:
        """Take the leader's status but leave its zombie, which keeps its group's number from being reused."""
        result = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if result is None:
            return
        self._ended = time.monotonic()
        self._poll.unregister(self._pidfd)
        if result.si_code == os.CLD_EXITED:
            self._status = (result.si_status, None)
            own = Cause.EXITED
        else:
            self._status = (None, result.si_status)
            own = Cause.SIGNALED
        if self._cause is None:
            self._cause = own
            self._kill_at = self._ended + LINGER_SECONDS

    def _finished(self) -> bool:
        if self._status is None:
            return self._give_up_at is not None and time.monotonic() >= self._give_up_at
        own = os.getpid()
        left = tree.children(own)
        if left != [self._leader]:
            tree.reap(own, spare={self._leader})
            left = tree.children(own)
        if left == [self._leader]:
            os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:  # the kernel's word that nothing is left
                self._tree_empty = True
            return True
        return self._give_up_at is not None and time.monotonic() >= self._give_up_at

    def _woken(self) -> None:
        numbers: set[int] = set()
        with contextlib.suppress(BlockingIOError):
            numbers = set(os.read(self._wakeup, 4096))
        if numbers - {signal.SIGCHLD}:  # asked to stop: the host is going down
            self._end(Cause.PROVIDER_GONE, 0, time.monotonic())
        if self._status is None:  # later `_finished` does it
            tree.reap(os.getpid(), spare={self._leader})

    def _talk(self, events: int) -> None:
        if self._provider is not None and events & select.POLLOUT:
            self._flush(self._provider)
        if self._provider is not None and events & ~select.POLLOUT:
            try:
                data = self._provider.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                self._obey(data)
            else:
                self._lost_provider()

    def _obey(self, data: bytes) -> None:
        try:
            for frame in self._splitter.feed(data):
                self._do(frame)
        except FrameError:
            self._lost_provider()

    def _do(self, frame: Frame) -> None:
        now = time.monotonic()
        head = frame.head
        match frame.kind:
            case Kind.CANCEL:
                grace = self._order.kill_grace if head["grace"] is None else head["grace"]
                self._end(Cause(head["cause"]), grace, now)
            case Kind.READ:
                wanted = Wanted(head["request"], head["offset"], min(head["limit"], MAX_CHUNK_BYTES))
                stream = self._streams[head["stream"]]
                if head["wait"] and wanted.offset >= stream.spool.total:
                    stream.want(wanted, now)
                else:
                    self._answer(stream, wanted)
            case Kind.FORGET:
                for stream in self._streams:
                    stream.forget(head["request"])
            case _:
                raise FrameError(f"a provider does not send {frame.kind.name}")

    def _answer(self, stream: OutputPipe, wanted: Wanted) -> None:
        if len(self._unsent) > _UNSENT_BYTES:
            self._deferred.append((stream, wanted))
            return
        total = stream.spool.total
        offset = min(wanted.offset, total)
        piece = stream.spool.read(offset, wanted.limit)
        head = {
            "request": wanted.request,
            "offset": piece.offset,
            "dropped_before": piece.dropped_before,
            "total": total,
        }
        self._send(pack(Kind.CHUNK, head, piece.data))

    def _send(self, data: bytes) -> None:
        if self._provider is not None:
            self._unsent += data
            self._flush(self._provider)

    def _flush(self, provider: socket.socket) -> None:
        """Send what the socket takes; the provider may turn out to be lost."""
        try:
            sent = provider.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._lost_provider()
            return
        del self._unsent[:sent]
        wanted = select.POLLIN | select.POLLRDHUP | (select.POLLOUT if self._unsent else 0)
        self._poll.modify(provider, wanted)

    def _lost_provider(self) -> None:
        if self._provider is not None:
            self._poll.unregister(self._provider)
            self._provider = None
            self._unsent.clear()
            self._deferred.clear()
            self._end(Cause.PROVIDER_GONE, 0, time.monotonic())
