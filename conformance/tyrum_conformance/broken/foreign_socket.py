"""Lets a process outside its own process group and session listen in its place; that one conforms."""

import subprocess
import sys


def main() -> int:
    """Start the foreign listener and hold its lifeline as long as one's own."""
    with subprocess.Popen(
        [sys.executable, "-m", "tyrum_conformance.broken", "good"],
        stdin=subprocess.PIPE,
        start_new_session=True,
    ) as foreign:
        assert foreign.stdin is not None
        while line := sys.stdin.buffer.readline():
            foreign.stdin.write(line)
            foreign.stdin.flush()
        foreign.stdin.close()
        return foreign.wait(timeout=10)
