"""The answer to a request: read as events, or told as what it is instead."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

from tyrum_gateway.domain.errors import ModelUnavailable
from tyrum_gateway.models.failures import Ending, StreamEnded
from tyrum_gateway.models.guarded_http import BROKEN, ERROR_SECONDS
from tyrum_gateway.models.sse import Event, EventReader

MAX_STREAM_BYTES = 256 * 1024 * 1024
"""What is read of one step: the longest text that is taken, in pieces of a character each."""
_MAX_BEGINNING = 4096
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")


@dataclass(frozen=True, slots=True)
class Answer:
    """One with a status of success."""

    content_type: str
    chunks: AsyncIterator[bytes]


async def events_of(answer: Answer) -> AsyncGenerator[Event, None]:
    """Read an answer as events; those without data, which some servers send as signs of life, are none.

    Raises:
        StreamEnded: It is no event stream.
        EventTooLarge: An event is larger than the bound.
        EventNotText: An event is no text.
        ModelUnavailable: It is larger than what is taken.
    """
    reader, left = EventReader(), MAX_STREAM_BYTES
    # Not every server says what it sends: then it shows in the first bytes.
    held = None if _says_stream(answer.content_type) else b""
    async for received in answer.chunks:
        chunk = received
        left -= len(chunk)
        if left < 0:
            raise ModelUnavailable(
                f"the model's server sent more than {MAX_STREAM_BYTES} bytes for one step", retryable=False
            )
        if held is not None:
            held += chunk
            if (begins := _begins_stream(held)) is None:
                continue
            if not begins:
                raise await _no_stream(answer, held)
            chunk, held = held, None
        for event in reader.feed(chunk):
            if event.data.strip():
                yield event
    if held is not None:
        raise await _no_stream(answer, held)
    for event in reader.close():
        if event.data.strip():
            yield event


def _says_stream(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "text/event-stream"


def _begins_stream(beginning: bytes) -> bool | None:
    """Tell whether bytes begin an event stream; None while they are too few."""
    line = beginning.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    if line.startswith(_FIELDS):
        return True
    return None if any(field.startswith(line) for field in _FIELDS) else False


async def _no_stream(answer: Answer, beginning: bytes) -> StreamEnded:
    with suppress(TimeoutError, *BROKEN):
        async with asyncio.timeout(ERROR_SECONDS):
            async for chunk in answer.chunks:
                beginning += chunk
                if len(beginning) >= _MAX_BEGINNING:
                    break
    said = beginning[:_MAX_BEGINNING].decode(errors="replace")
    return StreamEnded(Ending.NO_STREAM, said, answer.content_type)
