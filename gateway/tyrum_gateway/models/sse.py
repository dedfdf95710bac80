"""Server-sent events, as they come: bytes in, whole events out.

Invariant: what is held of an event that has not ended is bounded, whatever a server sends, and its data is
whole characters as the server sent them: nothing stands in the place of a byte that is no text. Ids and
comments are of no use here.
"""

from dataclasses import dataclass

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Data of one event: a whole call in one piece takes up to six times its size when JSON escapes it."""


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""May come first of all, and is no part of the first line."""


class EventTooLarge(ValueError):
    """An event has more than `MAX_EVENT_BYTES`."""


class EventNotText(ValueError):
    """The data of an event is no UTF-8."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event that has data."""

    data: str
    name: str = ""


class EventReader:
    """Splits a stream into events."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._name = b""
        self._held = 0
        self._after_return = False
        self._first = True

    def feed(self, chunk: bytes) -> list[Event]:
        """Take bytes; return the events that they complete.

        Raises:
            EventTooLarge: An event is larger than the bound.
            EventNotText: Its data is no text.
        """
        found: list[Event] = []
        for line in chunk.splitlines(keepends=True):
            content = line.rstrip(b"\r\n")
            ended = len(content) < len(line)
            if self._after_return and line == b"\n":
                self._after_return = False
                continue  # the rest of an end of line that was split between two pieces
            self._after_return = line.endswith(b"\r")
            self._hold(len(content))
            self._line += content
            if ended:
                found += self._end_line()
        return found

    def close(self) -> list[Event]:
        """Take the end of the stream: some servers leave out the last empty line."""
        return [*self._end_line(), *self._end_event()]

    def _end_line(self) -> list[Event]:
        line = bytes(self._line)
        self._line.clear()
        if not line:
            self._first = False
            return self._end_event()
        text = line.removeprefix(_BYTE_ORDER_MARK) if self._first else line
        self._first = False
        field, _, value = text.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        elif field == b"event":
            self._name = value.removeprefix(b" ")
            self._held -= len(line)
        else:
            self._held -= len(line)
        return []

    def _end_event(self) -> list[Event]:
        data, name, self._data, self._name, self._held = self._data, self._name, [], b"", 0
        if not data:
            return []
        try:
            return [Event(b"\n".join(data).decode(), name.decode(errors="replace"))]
        except UnicodeDecodeError:
            raise EventNotText from None

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > MAX_EVENT_BYTES:
            raise EventTooLarge
