"""Framing between the provider and a supervisor: a kind, a JSON head and a binary tail.

Both ends are the same build and the socket pair is private, so a malformed frame is a bug and ends the
conversation; nothing is guessed.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

MAX_CHUNK_BYTES: Final = 256 * 1024
"""Most output bytes in one `CHUNK`."""

_PREFIX: Final = struct.Struct("!IBI")
PREFIX_BYTES: Final = _PREFIX.size
_MAX_FRAME_BYTES: Final = 32 * 1024 * 1024


class Kind(IntEnum):
    """What a frame says; the first block is sent by the provider, the second by the supervisor."""

    START = 1
    CANCEL = 2
    READ = 3
    FORGET = 4

    STARTED = 16
    REFUSED = 17
    CHUNK = 18
    ENDED = 19


class FrameError(Exception):
    """The peer sent bytes that are no frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message."""

    kind: Kind
    head: Mapping[str, Any]
    blob: bytes


def pack(kind: Kind, head: Mapping[str, object], blob: bytes = b"") -> bytes:
    """Return the bytes of one frame."""
    text = json.dumps(head, separators=(",", ":")).encode()
    return _PREFIX.pack(len(text) + len(blob), kind, len(text)) + text + blob


def body_bytes(prefix: bytes) -> int:
    """Return how many bytes follow a prefix of `PREFIX_BYTES`.

    Raises:
        FrameError: the length exceeds what a peer of this build sends.
    """
    length, _, head_length = _PREFIX.unpack(prefix)
    if length > _MAX_FRAME_BYTES or head_length > length:
        raise FrameError(f"a frame of {length} bytes with a head of {head_length}")
    return int(length)


def unpack(prefix: bytes, body: bytes) -> Frame:
    """Return the frame made of a prefix and the body it announced.

    Raises:
        FrameError: the kind is unknown or the head is not a JSON object.
    """
    _, kind, head_length = _PREFIX.unpack(prefix)
    try:
        head = json.loads(body[:head_length])
        known = Kind(kind)
    except ValueError as error:
        raise FrameError("a frame of unknown kind or without a JSON head") from error
    if not isinstance(head, dict):
        raise FrameError("a frame whose head is not an object")
    return Frame(known, head, body[head_length:])


class Splitter:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add received bytes and yield the frames that are complete.

        Raises:
            FrameError: the stream is no sequence of frames.
        """
        self._buffer += data
        while len(self._buffer) >= PREFIX_BYTES:
            prefix = bytes(self._buffer[:PREFIX_BYTES])
            end = PREFIX_BYTES + body_bytes(prefix)
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[PREFIX_BYTES:end])
            del self._buffer[:end]
            yield unpack(prefix, body)
