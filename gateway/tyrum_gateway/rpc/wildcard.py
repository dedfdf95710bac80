"""The address `0.0.0.0`: every address of IPv4, and none of IPv6.

Invariant: a firewall for IPv4 is not gone around. gRPC's core takes both families for such an address, unless
another socket has the port of IPv6 at that moment; then it listens on IPv4 alone.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

IPV4_WILDCARD = "0.0.0.0:"
"""How such an address begins."""


@contextmanager
def ipv4_alone(port: int) -> Iterator[int]:
    """Hold a port of IPv6, on which nobody can connect, while gRPC is given the same one of IPv4.

    Args:
        port: 0 takes a free one of IPv6, which may be taken on IPv4.

    Yields:
        The port to listen on.
    """
    try:
        held = socket.socket(socket.AF_INET6, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    except OSError:
        yield port  # without IPv6 there is nothing to hold
        return
    with held:
        held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            held.bind(("::", port))
        except OSError:
            yield port  # another program has it, or IPv6 is turned off: gRPC cannot have it either
            return
        yield held.getsockname()[1]
