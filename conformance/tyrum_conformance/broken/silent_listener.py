"""Accepts connections and never says a word."""

from tyrum_conformance.broken._raw_listener import listen


def main() -> int:
    """Accept, and be silent."""
    return listen(b"")
