"""Server-sent events, as they come: bytes in, the data of whole events out.

Invariant: what is held of an event that has not ended is bounded, whatever a server sends. Names, ids and
comments are of no use here; both protocols say in the data what it is.
"""

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Data of one event: a whole call in one piece takes up to six times its size when JSON escapes it."""


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""May come first of all, and is no part of the first line."""


class EventTooLarge(ValueError):
    """An event has more than `MAX_EVENT_BYTES`."""


class EventReader:
    """Splits a stream into events."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._held = 0
        self._after_return = False
        self._first = True

    def feed(self, chunk: bytes) -> list[str]:
        """Take bytes; return the data of the events that they complete.

        Raises:
            EventTooLarge: An event is larger than the bound.
        """
        found: list[str] = []
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

    def close(self) -> list[str]:
        """Take the end of the stream: some servers leave out the last empty line."""
        return [*self._end_line(), *self._end_event()]

    def _end_line(self) -> list[str]:
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
        else:
            self._held -= len(line)
        return []

    def _end_event(self) -> list[str]:
        data, self._data, self._held = self._data, [], 0
        return [b"\n".join(data).decode(errors="replace")] if data else []

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > MAX_EVENT_BYTES:
            raise EventTooLarge
