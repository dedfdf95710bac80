"""One run from its order to its exit record.

Invariants: nothing executes before the journal is durable while the provider is still there, and the end is
reported after its record is durable.
"""

import contextlib
import errno
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Final, NoReturn

from tyrum_local_spawn.supervision import linux
from tyrum_local_spawn.supervision.descriptors import receive_descriptors
from tyrum_local_spawn.supervision.frames import Kind, Splitter, pack
from tyrum_local_spawn.supervision.launcher import LaunchFailed, enter, launch, prepare_inheritance
from tyrum_local_spawn.supervision.order import FileOrder, Order, from_head, to_head
from tyrum_local_spawn.supervision.pipes import OutputPipe, PipeEnds, open_pipe
from tyrum_local_spawn.supervision.record import (
    NO_OUTPUT,
    STREAMS,
    Cause,
    ExitRecord,
    Journal,
    Refusal,
    encode_exit,
    encode_journal,
)
from tyrum_local_spawn.supervision.run import Run
from tyrum_local_spawn.supervision.spool import Spool
from tyrum_local_spawn.supervision.target import Refused, Target, open_target
from tyrum_local_spawn.supervision.workplace import AlreadyBegun, Workplace

_ORDER_SECONDS: Final = 10.0
_FAREWELL_SECONDS: Final = 5.0
_RECEIVE_BYTES: Final = 64 * 1024
TAKEN: Final = struct.Struct("!i")
"""What a supervisor tells the spawner when it is no longer idle: its process id."""


def supervise(control: socket.socket, taken_fd: int, runs_fd: int, boot_id: str) -> NoReturn:
    """Be an idle supervisor until an order comes, then own that run to its end; never returns."""
    code = 1
    try:
        os.setsid()
        linux.become_subreaper()
        wakeup = _listen_to_signals()
        prepare_inheritance()
        workplace = Workplace(runs_fd)
        prepared = Prepared(workplace, tuple(open_pipe() for _ in STREAMS), wakeup, boot_id)
        _rehearse(prepared)
        try:
            data, fds = receive_descriptors(control, 1, 1)
        except ConnectionResetError:
            data, fds = b"", []
        if not data or not fds:
            workplace.remove()
            os._exit(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fds[0]) as provider:
            _Supervisor(provider, prepared, Pool(control, taken_fd)).run()
        code = 0
    except Exception as error:  # noqa: BLE001 - this process has no caller: say where, never what with
        places = traceback.extract_tb(error.__traceback__)
        trail = " < ".join(f"{place.name}:{place.lineno}" for place in reversed(places))
        sys.stderr.write(f"local_spawn: a supervisor failed: {type(error).__name__} at {trail}\n")
        sys.stderr.flush()
    finally:
        os._exit(code)


def _rehearse(prepared: "Prepared") -> None:
    """Go through an order once: the memory it touches is this process's own before the real one comes."""
    root = os.stat("/")  # noqa: PTH116 - pathlib is not loaded here
    order = Order(
        operation_id="",
        process_id="",
        spec_digest="",
        program=FileOrder("/proc/self/exe", ""),
        argv=("rehearsal",),
        env={},
        workspace="/",
        device=root.st_dev,
        inode=root.st_ino,
        cwd="",
        stdin=b"",
        operands=(),
        wall_time=0,
        output_bytes=0,
        kill_grace=0,
        spool_bytes=0,
        run_as=None,
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(pack(Kind.START, to_head(order)))
        received = _receive_order(ours, Splitter())
    assert received is not None
    target = open_target(received)
    target.close()
    with contextlib.suppress(LaunchFailed):  # its program is closed: there is nothing that could execute
        launch(received, target, (0, 1, 2))
    encode_journal(Journal("", "", "", "", 0, 0, 0, 0))
    stdout, stderr = (stream.spool.end() for stream in _streams(prepared, received))
    encode_exit(ExitRecord(Cause.LOST, None, None, 0, 0, 0, stdout, stderr, tree_empty=False))


def _receive_order(provider: socket.socket, splitter: Splitter) -> Order | None:
    provider.settimeout(_ORDER_SECONDS)
    while True:
        try:
            data = provider.recv(_RECEIVE_BYTES)
        except OSError:
            return None
        if not data:
            return None
        for frame in splitter.feed(data):
            return from_head(frame.head, frame.blob) if frame.kind is Kind.START else None


def _streams(prepared: "Prepared", order: Order) -> tuple[OutputPipe, ...]:
    return tuple(
        OutputPipe(Spool(prepared.workplace.fd, name, order.spool_bytes), ends.read_fd)
        for name, ends in zip(STREAMS, prepared.pipes, strict=True)
    )


def _listen_to_signals() -> int:
    """Turn SIGCHLD into wake-ups, and requests to stop into the end of the run."""
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
        signal.siginterrupt(number, False)  # noqa: FBT003 - the standard library's signature
    return read_fd


@dataclass(frozen=True, slots=True)
class Prepared:
    """What an idle supervisor holds ready, so that an order finds it made."""

    workplace: Workplace
    pipes: tuple[PipeEnds, ...]
    wakeup: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class Pool:
    """What ties a supervisor to those that are idle."""

    control: socket.socket
    taken_fd: int

    def leave(self) -> None:
        """Tell the spawner that it lacks one."""
        self.control.close()
        with contextlib.suppress(BrokenPipeError):  # a killed spawner; this run goes on without
            os.write(self.taken_fd, TAKEN.pack(os.getpid()))
        os.close(self.taken_fd)


class _Supervisor:
    """The stages before and after the loop.

    Nobody is told that the command runs before it has done so for a moment: a short one ends meanwhile, and
    whoever was woken would take the processor from it.
    """

    def __init__(self, provider: socket.socket, prepared: Prepared, pool: Pool) -> None:
        self._provider = provider
        self._pool = pool
        self._prepared = prepared
        self._workplace = prepared.workplace
        self._splitter = Splitter()

    def run(self) -> None:
        order = _receive_order(self._provider, self._splitter)
        if order is None:
            self._pool.leave()
            self._workplace.remove()
            return
        recorded = time.time_ns()
        try:
            target = self._begin(order, recorded)
        except Refused as refused:
            self._workplace.remove()
            self._pool.leave()
            self._refuse(refused)
            return
        try:
            leader = self._execute(order, target, recorded)
        except Refused as refused:
            self._pool.leave()
            self._conclude_unexecuted(refused, recorded)
            return
        run = Run(
            order,
            self._provider,
            self._splitter,
            leader,
            _streams(self._prepared, order),
            self._prepared.wakeup,
            recorded,
            self._pool.leave,
        )
        run.loop()
        data = run.conclude(self._workplace)
        run.farewell(pack(Kind.ENDED, {}, data))
        if not run.announced:
            self._pool.leave()

    def _begin(self, order: Order, recorded: int) -> Target:
        """Do everything that must hold before the command may execute; at its end the operation has begun."""
        target = open_target(order)
        try:
            enter(target.directory_fd, order.run_as)
        except OSError as error:
            problem = os.strerror(error.errno or 0)
            raise Refused(
                Refusal.FIELD_INVALID, f"the run's user cannot enter `spec.cwd`: {problem}", "spec.cwd"
            ) from error
        try:
            self._workplace.write_journal(
                Journal(
                    operation_id=order.operation_id,
                    process_id=order.process_id,
                    spec_digest=order.spec_digest,
                    boot_id=self._prepared.boot_id,
                    supervisor_pid=os.getpid(),
                    run_uid=os.getuid() if order.run_as is None else order.run_as.uid,
                    spool_bytes=order.spool_bytes,
                    recorded_at_ns=recorded,
                )
            )
            self._workplace.publish(order.operation_id)
        except AlreadyBegun as error:
            raise Refused(Refusal.REQUEST_ID_REUSED, "the operation has a record") from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise Refused(Refusal.QUOTA, "no space to record the operation") from error
            raise
        return target

    def _execute(self, order: Order, target: Target, recorded: int) -> int:
        """Execute the command, unless the provider went away meanwhile, and return its process id.

        A successor of the provider may have answered before this record existed that the operation never
        started; this provider was gone by then, so the look that follows the record keeps that promise.
        """
        poll = select.poll()
        poll.register(self._provider, select.POLLRDHUP)
        if poll.poll(0):
            raise Refused(Refusal.INTERNAL, "the provider went away before the command executed")
        stdin = _stdin(order.stdin)
        try:
            stdout, stderr = (ends.write_fd for ends in self._prepared.pipes)
            leader = launch(order, target, (stdin, stdout, stderr))
        except LaunchFailed as error:
            raise _refused(error) from error
        for fd in (stdin, stdout, stderr):
            os.close(fd)
        target.close()
        os.chdir("/")  # hold no directory of the workspace
        return leader

    def _conclude_unexecuted(self, refused: Refused, recorded: int) -> None:
        data = self._workplace.conclude(
            ExitRecord(
                cause=Cause.START_FAILED,
                exit_code=None,
                signal=None,
                started_at_ns=recorded,
                ended_at_ns=time.time_ns(),
                duration_ns=0,
                stdout=NO_OUTPUT,
                stderr=NO_OUTPUT,
                tree_empty=True,
                refusal=refused.refusal,
                detail=refused.message,
            )
        )
        self._refuse(refused, data)

    def _refuse(self, refused: Refused, record: bytes = b"") -> None:
        head = {"refusal": refused.refusal, "message": refused.message, "field": refused.field}
        self._provider.settimeout(_FAREWELL_SECONDS)
        with contextlib.suppress(OSError):
            self._provider.sendall(pack(Kind.REFUSED, head, record))


def _stdin(data: bytes) -> int:
    """Return a descriptor that yields the bytes and then end of file."""
    if not data:
        return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    writable = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(writable, rest) :]
        return os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(writable)


def _refused(error: LaunchFailed) -> Refused:
    if error.code == errno.E2BIG:
        return Refused(
            Refusal.FIELD_INVALID, "`spec.argv` and `spec.env` exceed what the kernel takes", "spec.argv"
        )
    if error.transient:
        return Refused(Refusal.INTERNAL, f"no process could be made: {error}")
    return Refused(Refusal.PROGRAM_NOT_EXECUTABLE, f"the program could not be executed: {error}")
