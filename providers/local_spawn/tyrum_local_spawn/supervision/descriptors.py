"""Receiving descriptors without ever letting one be inherited."""

import array
import socket


def receive_descriptors(channel: socket.socket, size: int, count: int) -> tuple[bytes, list[int]]:
    """Receive at most `size` bytes and `count` descriptors, close-on-exec from the first moment.

    `socket.recv_fds` ignores its flags in CPython 3.11 and would leave them inheritable.
    """
    fds = array.array("i")
    space = socket.CMSG_LEN(count * fds.itemsize)
    data, ancillary, _, _ = channel.recvmsg(size, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, list(fds)
