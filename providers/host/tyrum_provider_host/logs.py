"""What a provider writes to standard output and standard error: kept as a short, bounded, redacted log.

Invariant: output is never protocol, never shows a secret that the host gave to the provider, and can neither
stall the provider below the drained rate nor cost the host more than a fixed share of its time.
"""

import asyncio
import os
import re
from collections import deque
from collections.abc import Iterable

from tyrum_provider_host.spec import MASK

MAX_LINES = 200
MAX_LINE_BYTES = 8 * 1024
KEPT_BYTES_PER_SECOND = 64 * 1024
DRAIN_PAUSE = 0.01
_LAST_BYTES = 1024 * 1024
_READ_BYTES = 64 * 1024
_SHORTEST_REDACTED = 4
_CHEAPEST_LINE = 64
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def sanitise(text: str, limit: int) -> str:
    """Make provider-written text safe to show.

    Terminal sequences, control and bidirectional characters are removed, and the length is capped.
    """
    clean = _CONTROL.sub("", _TERMINAL.sub("", text).replace("\r", "").replace("\n", " ").replace("\t", " "))
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


class LogRing:
    """The last lines of one provider instance, oldest first."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._secrets: list[bytes] = []
        self._dropped = 0
        self._allowance = float(KEPT_BYTES_PER_SECOND)
        self._refilled = asyncio.get_running_loop().time()

    @property
    def lines(self) -> tuple[str, ...]:
        """The kept lines; the last one says how many bytes were dropped, if any were."""
        kept = tuple(self._lines)
        return (*kept, f"[{self._dropped} bytes of output dropped]") if self._dropped else kept

    def redact(self, values: Iterable[str]) -> None:
        """Mask these values, and each longer line of them, in everything that is written from now on."""
        for value in values:
            for part in {value, *value.splitlines()}:
                if len(part) >= _SHORTEST_REDACTED:
                    self._secrets.append(part.encode("utf-8", "surrogateescape"))
        self._secrets.sort(key=len, reverse=True)

    @property
    def longest_secret(self) -> int:
        """Bytes of the longest masked value."""
        return len(self._secrets[0]) if self._secrets else 0

    def exhausted(self) -> bool:
        """Tell whether the rate limit leaves no room for another line now."""
        now = asyncio.get_running_loop().time()
        self._allowance = min(
            KEPT_BYTES_PER_SECOND, self._allowance + (now - self._refilled) * KEPT_BYTES_PER_SECOND
        )
        self._refilled = now
        return self._allowance < _CHEAPEST_LINE

    def add(self, stream: str, line: bytes, *, cut: bool = False) -> None:
        """Keep one line, unless the rate limit is exceeded; `cut` says that its end is missing."""
        if self.exhausted() or len(line) > self._allowance:
            self._dropped += len(line)
            return
        self._allowance -= max(len(line), _CHEAPEST_LINE)
        line = self._hide(line)
        if cut:
            # What a cut left of a secret stands at the very end, and is shorter than the secret.
            line = line[: len(line) - self.longest_secret]
        text = sanitise(line.decode("utf-8", "replace"), MAX_LINE_BYTES)
        self._lines.append(f"{stream}: {text}")

    def masked(self, text: str) -> str:
        """Mask the redacted values in what the provider wrote elsewhere than to its output."""
        return self._hide(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def _hide(self, text: bytes) -> bytes:
        for secret in self._secrets:
            text = text.replace(secret, MASK.encode())
        return text

    def drop(self, count: int) -> None:
        """Count bytes that were read and not kept."""
        self._dropped += count


class LogReader:
    """Drains one pipe of the provider into a ring until it ends or the reader is closed."""

    def __init__(self, stream: str, descriptor: int, ring: LogRing) -> None:
        self._stream, self._descriptor, self._ring = stream, descriptor, ring
        self._loop = asyncio.get_running_loop()
        self._partial = bytearray()
        self._skipping = False
        self._resume: asyncio.TimerHandle | None = None
        self._open = True
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._readable)

    def close(self) -> None:
        """Take what is there without waiting, then close the pipe. Idempotent."""
        if not self._open:
            return
        for _ in range(_LAST_BYTES // _READ_BYTES):
            if not self._read():
                break
        self._finish()

    def _readable(self) -> None:
        self._read()
        if self._open and self._ring.exhausted():
            # A provider that floods is slowed down to one pipe buffer a pause: it must not take the loop.
            self._loop.remove_reader(self._descriptor)
            self._resume = self._loop.call_later(DRAIN_PAUSE, self._continue)

    def _continue(self) -> None:
        self._resume = None
        if self._open:
            self._loop.add_reader(self._descriptor, self._readable)

    def _read(self) -> bool:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self._finish()
            return False
        self._split(data)
        return True

    def _split(self, data: bytes) -> None:
        capacity = MAX_LINE_BYTES + self._ring.longest_secret
        position = 0
        while position < len(data):
            if self._ring.exhausted():
                # Cheap on purpose: a flood must not cost the loop a line at a time.
                self._ring.drop(len(self._partial) + len(data) - position)
                self._partial.clear()
                self._skipping = not data.endswith(b"\n")
                return
            newline = data.find(b"\n", position)
            end = len(data) if newline < 0 else newline
            piece, position = data[position:end], end + 1
            if self._skipping:
                self._ring.drop(len(piece))
            else:
                self._partial += piece
                if newline >= 0 or len(self._partial) > capacity:
                    self._flush(capacity)
                    self._skipping = newline < 0
            if newline >= 0:
                self._skipping = False

    def _flush(self, capacity: int) -> None:
        line = bytes(self._partial)
        self._partial.clear()
        cut = len(line) > capacity
        if cut:
            self._ring.drop(len(line) - MAX_LINE_BYTES)
            line = line[:capacity]
        self._ring.add(self._stream, line, cut=cut)

    def _finish(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        if self._partial and not self._skipping:
            self._flush(MAX_LINE_BYTES + self._ring.longest_secret)
