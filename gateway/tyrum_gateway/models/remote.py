"""A model behind HTTP: one request a step, read until the protocol's own end.

Invariant: a step counts only when that end was seen and every call is whole; anything else is one failure in
our own words. The key is fetched for each request and is part of no message.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Protocol

import anyio
import httpx2

from tyrum_gateway.domain.errors import ModelUnavailable
from tyrum_gateway.domain.model import ModelEvent, Prompt, StepEnd, TextDelta
from tyrum_gateway.domain.usage import Usage
from tyrum_gateway.models.endpoint import Endpoint, KeyUnavailable
from tyrum_gateway.models.failures import Ending, Failures, StreamEnded
from tyrum_gateway.models.guarded_http import Encoded
from tyrum_gateway.models.sse import EventReader, EventTooLarge
from tyrum_gateway.models.tool_names import ToolNames

MAX_STREAM_BYTES = 256 * 1024 * 1024
"""What is read of one step: the longest text that is taken, in pieces of a character each."""


_BROKEN = (httpx2.HTTPError, OSError, anyio.EndOfStream)
"""What reading an answer raises when its connection ends; the last is one that httpx2 does not translate."""


class Reader(Protocol):
    """Reads the stream of one step in one protocol."""

    emitted: bool
    """Whether any text or part of a call has come."""
    done: bool
    """Whether the protocol's end has come."""

    @property
    def usage(self) -> Usage:
        """What the server told so far."""
        ...

    def feed(self, data: str) -> str:
        """Take the data of an event; return the text that it brings.

        Raises:
            StreamEnded: The event is an error, or cannot be read.
            ModelUnavailable: The step makes more calls than are taken.
        """
        ...

    def end(self, names: ToolNames) -> StepEnd:
        """Return the step when the stream ended as the protocol says.

        Raises:
            StreamEnded: It did not, or the step is none that counts.
        """
        ...


class Wire(Protocol):
    """Speaks one protocol through the SDK of who defined it."""

    def reader(self) -> Reader:
        """Make the reader of one step."""
        ...

    def stream(
        self, prompt: Prompt, names: ToolNames, key: str
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Send a request; the context holds the body of its answer.

        Raises:
            ModelUnavailable: The server cannot be reached, or refuses.
        """
        ...


class RemoteModel:
    """A transport to a model behind HTTP."""

    def __init__(self, endpoint: Endpoint, wire: Wire) -> None:
        self._endpoint = endpoint
        self._wire = wire
        self._failures = failures_of(endpoint)

    async def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Produce one step.

        Raises:
            ModelUnavailable: The step could not be completed.
        """
        key = await self._key()
        names = ToolNames(schema.tool for schema in prompt.tools)
        reader, said = self._wire.reader(), False
        try:
            async with (
                self._wire.stream(prompt, names, key) as chunks,
                aclosing(_events(chunks)) as events,
            ):
                async for data in events:
                    if new := reader.feed(data):
                        said = True
                        yield TextDelta(new)
                    if reader.done:
                        break
            end = reader.end(names)
        except (StreamEnded, EventTooLarge, *_BROKEN) as error:
            ended = _ending(error, reader.usage)
            raise self._failures.of_ending(ended, emitted=reader.emitted, said=said) from None
        yield end

    async def _key(self) -> str:
        try:
            key = await asyncio.to_thread(self._endpoint.key)
        except KeyUnavailable as error:
            raise self._failures.unusable_key(str(error)) from None
        if not key:
            raise self._failures.unusable_key("it is empty")
        if not key.isascii() or not key.isprintable() or " " in key:
            raise self._failures.unusable_key("it holds a character that no key has, such as a blank")
        return key


def _ending(error: Exception, usage: Usage) -> StreamEnded:
    match error:
        case StreamEnded():
            return error
        case EventTooLarge():
            return StreamEnded(Ending.UNREADABLE, usage)
        case _:
            return StreamEnded(Ending.BROKEN_OFF, usage)


async def _events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    events, left = EventReader(), MAX_STREAM_BYTES
    async for chunk in chunks:
        left -= len(chunk)
        if left < 0:
            raise ModelUnavailable(
                f"the model's server sent more than {MAX_STREAM_BYTES} bytes for one step", retryable=False
            )
        for data in events.feed(chunk):
            yield data
    for data in events.close():
        yield data


def failures_of(endpoint: Endpoint) -> Failures:
    """Make the failures of a configured model."""
    return Failures(endpoint.name, endpoint.secret)


def unanswered(failures: Failures, error: BaseException) -> ModelUnavailable:
    """Describe a request that brought no answer, from what is behind an SDK's error."""
    cause: BaseException | None = error
    seen = 0
    while cause is not None and seen < 16:
        if isinstance(cause, Encoded):
            return failures.of_ending(StreamEnded(Ending.UNREADABLE), emitted=True, said=False)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return failures.unreachable(untrusted=True)
        cause, seen = cause.__cause__ or cause.__context__, seen + 1
    return failures.unreachable(untrusted=False)
