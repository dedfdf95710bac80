"""Answers in HTTP/1.1 where gRPC is expected."""

from tyrum_conformance.broken._raw_listener import listen


def main() -> int:
    """Serve something else."""
    return listen(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
