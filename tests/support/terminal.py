"""A pseudo terminal with a program in it, driven like a person would: read what is there, then type."""

import contextlib
import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_SECONDS = 40.0
_STILL = 0.05
"""Seconds without work after which a program counts as waiting."""


class Terminal:
    """A program on a terminal; `screen` is everything that it has written."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self._process = process
        self._descriptor = descriptor
        self._before = termios.tcgetattr(descriptor)
        self._seen = 0
        self.screen = ""

    def wait_for(self, text: str) -> str:
        """Read until `text` has appeared after what was waited for before; return what came with it."""
        deadline = time.monotonic() + _SECONDS
        while (at := self.screen.find(text, self._seen)) < 0:
            if not self._read(deadline):
                raise AssertionError(f"`{text}` did not appear on\n{self.screen}")
        before, self._seen = self._seen, at + len(text)
        return self.screen[before : self._seen]

    def type(self, text: str) -> None:
        """Type text."""
        os.write(self._descriptor, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C, as a person does: when the program waits for a key.

        A signal that comes while `input` still takes in what was typed is seen only at the next key.
        """
        deadline = time.monotonic() + _SECONDS
        before = None
        while (now := self._activity()) != before or now[0] != "S":
            assert time.monotonic() < deadline, f"the program does not wait for a key on\n{self.screen}"
            before = now
            self._read(time.monotonic() + _STILL)
        self._process.send_signal(signal.SIGINT)

    def _activity(self) -> tuple[str, ...]:
        """Return the state of the program's main thread, and the time that it has used."""
        status = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8")
        fields = status.rpartition(")")[2].split()
        return fields[0], fields[11], fields[12]

    def sane(self) -> bool:
        """Tell whether the terminal echoes and gives whole lines, as it did before."""
        return termios.tcgetattr(self._descriptor) == self._before

    def end(self) -> int:
        """Read until the program ends; return its exit code."""
        deadline = time.monotonic() + _SECONDS
        while self._read(deadline):
            pass
        return self._process.wait(_SECONDS)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # the other side is closed
            return False
        self.screen += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)


@contextlib.contextmanager
def on_terminal(
    command: Sequence[str], environment: Mapping[str, str], *, typed: str = "", columns: int = 0
) -> Iterator[Terminal]:
    """Run a program on a terminal of its own, where something was typed before; it is gone at the end."""
    ours, theirs = pty.openpty()
    if columns:
        termios.tcsetwinsize(theirs, (40, columns))
    os.write(ours, typed.encode())
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=dict(environment), start_new_session=True
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
