"""Who listens on a provider's socket, as the kernel of the operating system knows it.

Invariant: the bearer is sent only to the process that the host started, or to one in its session; a socket
path can be taken over silently by any process that may write to the directory. Who cannot be looked at is not
believed.
"""

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_UCRED = struct.Struct("3i")
_EXHAUSTED = {errno.EMFILE, errno.ENFILE}


class CannotLook(OSError):
    """This process has no descriptor or thread left to look with, which tells nothing about who listens."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Credentials of the process that called `listen`."""

    pid: int
    uid: int
    gid: int

    def __str__(self) -> str:
        return f"uid {self.uid}, pid {self.pid}"


def peer_of(connection: socket.socket) -> Peer:
    """Read the credentials of the other end."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return Peer(*_UCRED.unpack(raw))


def try_connect(path: Path) -> Peer | None:
    """Connect once and read who listens; None while nobody does.

    Raises:
        CannotLook: there is no free descriptor.
        OSError: the path exists and can never be connected to, for example because it is a regular file.
    """
    with _looking():
        connection = socket.socket(
            socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
    with connection:
        try:
            connection.connect(os.fspath(path))
        except (FileNotFoundError, BlockingIOError, InterruptedError):
            return None
        except ConnectionRefusedError:
            if path.is_socket() or not path.exists():
                return None
            raise
        return peer_of(connection)


def open_connections(path: Path) -> tuple[Peer, ...]:
    """Find this process's own connections to `path` and read who listens at the other end of each.

    Raises:
        CannotLook: there is no free descriptor.
    """
    wanted = os.fspath(path)
    with _looking():
        entries = list(Path("/proc/self/fd").iterdir())
    peers = []
    for entry in entries:
        with contextlib.suppress(OSError):  # it was closed meanwhile
            if os.fspath(entry.readlink()).startswith("socket:"):
                peers.append(_peer_over(int(entry.name), wanted))
    return tuple(peer for peer in peers if peer is not None)


def _peer_over(descriptor: int, wanted: str) -> Peer | None:
    """Read who is at the other end of somebody's socket, if that end has the wanted path.

    Looked at without a copy: closing one of what has become a file meanwhile would release its locks.
    """
    connection = socket.socket(fileno=descriptor)
    try:
        if connection.family != socket.AF_UNIX or connection.getpeername() != wanted:
            return None
        return peer_of(connection)
    finally:
        connection.detach()


@contextlib.contextmanager
def _looking() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise CannotLook(error.errno, error.strerror) from error
        raise


def belongs_to(peer: Peer, *, leader: int, uid: int) -> bool:
    """Tell whether the listener is the started process or one in its session, under the expected user."""
    if peer.uid != uid or peer.pid <= 0:
        return False
    if peer.pid == leader:
        return True
    try:
        return os.getsid(peer.pid) == leader
    except OSError:
        return False
