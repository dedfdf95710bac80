"""A model behind HTTP: one request a step, read until the protocol's own end.

Invariant: a step counts only when that end was seen and every call is whole; anything else is one failure
that names its cause. Secrets are fetched for each request and are part of no message.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Protocol

from tyrum_gateway.domain.errors import ModelUnavailable
from tyrum_gateway.domain.model import ModelEvent, Prompt, StepEnd, TextDelta
from tyrum_gateway.domain.usage import UNKNOWN, Usage
from tyrum_gateway.models.answer import Answer, events_of
from tyrum_gateway.models.endpoint import Credentials, Endpoint, KeyUnavailable, Secret
from tyrum_gateway.models.failures import Ending, Failures, StreamEnded
from tyrum_gateway.models.forward_proxy import ProxyFailed
from tyrum_gateway.models.guarded_http import BROKEN, Encoded
from tyrum_gateway.models.halves import Halves
from tyrum_gateway.models.reaching import causes, why
from tyrum_gateway.models.server_words import masking
from tyrum_gateway.models.sse import EventNotText, EventTooLarge
from tyrum_gateway.models.tool_names import ToolNames


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

    def feed(self, data: str, name: str = "") -> str:
        """Take the data and the name of an event; return the text that it brings.

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
        self, prompt: Prompt, names: ToolNames, credentials: Credentials
    ) -> AbstractAsyncContextManager[Answer]:
        """Send a request; the context holds its answer.

        Raises:
            ModelUnavailable: The server cannot be reached, or refuses.
        """
        ...


class RemoteModel:
    """A transport to a model behind HTTP."""

    def __init__(self, endpoint: Endpoint, wire: Wire) -> None:
        self._endpoint = endpoint
        self._wire = wire

    async def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Produce one step.

        Raises:
            ModelUnavailable: The step could not be completed.
        """
        credentials = await credentials_of(self._endpoint)
        names = ToolNames(schema.tool for schema in prompt.tools)
        reader, halves, said = self._wire.reader(), Halves(), False
        try:
            async with (
                self._wire.stream(prompt, names, credentials) as answer,
                aclosing(events_of(answer)) as events,
            ):
                async for event in events:
                    if new := halves.add(reader.feed(event.data, event.name)):
                        said = True
                        yield TextDelta(new)
                    if reader.done:
                        break
            if rest := halves.rest():
                yield TextDelta(rest)
            end = reader.end(names)
        except (StreamEnded, EventTooLarge, EventNotText, *BROKEN) as error:
            raise failures_of(self._endpoint, credentials).of_ending(
                _ended(error), reader.usage, emitted=reader.emitted, said=said
            ) from None
        yield end


async def credentials_of(endpoint: Endpoint) -> Credentials:
    """Fetch what the secrets of a model hold now.

    Raises:
        ModelUnavailable: One cannot be had, or cannot be sent.
    """
    failures = failures_of(endpoint)
    key, proxy = await _secret(failures, endpoint.key), endpoint.proxy
    if not key.isascii() or " " in key:
        raise failures.unusable(endpoint.key.name, "it holds a character that no key has, such as a blank")
    if proxy is None or proxy.login is None:
        return Credentials(key, None)
    user, colon, password = (await _secret(failures, proxy.login)).partition(":")
    if not user or not colon:
        raise failures.unusable(proxy.login.name, "it is not `USER:PASSWORD`, for the proxy")
    return Credentials(key, (user, password))


async def _secret(failures: Failures, secret: Secret) -> str:
    try:
        value = await asyncio.to_thread(secret.fetch)
    except KeyUnavailable as error:
        raise failures.unusable(secret.name, str(error)) from None
    if not value:
        raise failures.unusable(secret.name, "it is empty")
    if not value.isprintable():
        raise failures.unusable(secret.name, "it holds a character that cannot be sent")
    return value


def _ended(error: Exception) -> StreamEnded:
    match error:
        case StreamEnded():
            return error
        case EventTooLarge():
            return StreamEnded(Ending.UNREADABLE)
        case EventNotText():
            return StreamEnded(Ending.NOT_TEXT)
        case _:
            return StreamEnded(Ending.BROKEN_OFF)


def failures_of(endpoint: Endpoint, credentials: Credentials | None = None) -> Failures:
    """Make the failures of a configured model.

    Args:
        endpoint: The model's.
        credentials: Those of the request, which no failure shows a part of.
    """
    proxy, secrets = endpoint.proxy, [] if credentials is None else [credentials.key]
    if credentials is not None and credentials.login is not None:
        secrets.append(credentials.login[1])
    return Failures(
        endpoint.name,
        endpoint.key.name,
        endpoint.address,
        endpoint.base_url,
        "" if proxy is None else proxy.address,
        None if proxy is None or proxy.login is None else proxy.login.name,
        masking(secrets, endpoint.mask),
    )


def unanswered(failures: Failures, error: BaseException) -> ModelUnavailable:
    """Describe a request that brought no answer, from what is behind an SDK's error."""
    for cause in causes(error):
        match cause:
            case Encoded():
                return failures.of_ending(StreamEnded(Ending.UNREADABLE), UNKNOWN, emitted=True, said=False)
            case ProxyFailed(status=status, untrusted=untrusted):
                return failures.of_proxy(status, untrusted=untrusted)
            case _:
                pass
    return failures.unreachable(why(error))
