"""Lets a process outside its own process group and session listen in its place; that one conforms."""

import subprocess
import sys


def main() -> int:
    """Leave token and lifeline to the foreign listener, and end with it."""
    command = [sys.executable, "-m", "tyrum_conformance.broken", "good"]
    with subprocess.Popen(command, start_new_session=True) as foreign:
        return foreign.wait()
