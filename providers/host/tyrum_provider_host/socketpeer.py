"""Who listens on a provider's socket, as the kernel of the operating system knows it.

Invariant: the bearer is sent only to the process that the host started, or to one in its session; a socket
path can be taken over silently by any process that may write to the directory.
"""

import contextlib
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

_UCRED = struct.Struct("3i")


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
        OSError: the path exists and can never be connected to, for example because it is a regular file.
    """
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
    """Find this process's own connections to `path` and read who listens at the other end of each."""
    wanted = os.fspath(path)
    peers = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if not os.fspath(entry.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                if connection.family == socket.AF_UNIX and connection.getpeername() == wanted:
                    peers.append(peer_of(connection))
    return tuple(peers)


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
