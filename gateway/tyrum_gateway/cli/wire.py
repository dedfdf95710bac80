"""The wire that this command line speaks, and how one is told that the gateway speaks another.

Invariant: a message that cannot be read ends the command with both versions named; nothing of it is used.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import grpc.aio

from tyrum_gateway.cli.failure import Failure
from tyrum_gateway.cli.version import installed

Calls = Callable[..., Any]


class Unreadable(Exception):
    """An answer is no message of its method: gRPC hands on None in its place."""


class ReadingChannel:
    """A channel whose answers are messages or `Unreadable`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def unary_unary(self, method: str, **options: Any) -> Calls:
        """See `grpc.aio.Channel`."""
        call: Calls = self._channel.unary_unary(method, **options)

        async def answer(*arguments: Any, **bounds: Any) -> Any:
            return _readable(await call(*arguments, **bounds))

        return answer

    def unary_stream(self, method: str, **options: Any) -> Calls:
        """See `grpc.aio.Channel`."""
        call: Calls = self._channel.unary_stream(method, **options)
        return lambda *arguments, **bounds: _ReadableStream(call(*arguments, **bounds))

    @property
    def as_channel(self) -> grpc.aio.Channel:
        """As the stubs take it."""
        return cast("grpc.aio.Channel", self)


class _ReadableStream:
    """A stream whose every item is a message."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for item in self._call:
            yield _readable(item)


def _readable(message: Any) -> Any:
    if message is None:
        raise Unreadable
    return message


def other_version(announced: str) -> Failure:
    """Describe a gateway that speaks another version of the contracts.

    Args:
        announced: The version that its state directory names; empty when that is not known.
    """
    theirs = f"version {announced}" if announced else "another version"
    return Failure(
        f"the gateway ({theirs}) and this command line (version {installed()}) do not understand each other",
        hint="use the `tyrum` command that was installed together with the gateway",
    )
