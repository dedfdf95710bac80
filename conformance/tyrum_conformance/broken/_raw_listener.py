"""A listener on the provider's socket that speaks no gRPC."""

import contextlib
import os
import select
import socket
import sys

from tyrum_provider_kit.environment import SOCKET


def listen(reply: bytes) -> int:
    """Answer every connection with `reply`, keep it open, and end with standard input."""
    connections: list[socket.socket] = []
    with contextlib.ExitStack() as stack, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(os.environ[SOCKET])
        listener.listen()
        while True:
            readable, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in readable and not os.read(sys.stdin.fileno(), 4096):
                return 0
            if listener in readable:
                connections.append(stack.enter_context(listener.accept()[0]))
                with contextlib.suppress(OSError):
                    connections[-1].sendall(reply)
