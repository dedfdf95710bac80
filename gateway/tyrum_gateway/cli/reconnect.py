"""A stream that outlives its connection.

Invariants: what a service refused is never tried again; how to resume is decided anew for each connection, by
whoever knows what was seen.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import TypeVar

import grpc
import grpc.aio

from tyrum_gateway.cli.connection import Gateway, Target, Unreachable, connect, describe, reason_of
from tyrum_gateway.cli.failure import Failure
from tyrum_gateway.cli.output import note

RECONNECT_FOR = 60.0
"""Seconds for which a lost gateway is looked for."""

_RETRY = 0.25
_ENDED = "the gateway ended the stream and did not come back"

Item = TypeVar("Item")


async def resilient(
    find: Callable[[], Target],
    open_stream: Callable[[Gateway], AsyncIterable[Item]],
    *,
    tell: Callable[[str], None] = note,
) -> AsyncGenerator[Item, None]:
    """Yield the items of a stream; when its connection is lost, connect and open it again.

    Args:
        find: Finds the gateway, again for each connection.
        open_stream: Opens the stream where the last one ended.
        tell: Tells the user that the connection was lost, and that it is back.

    Raises:
        Failure: No gateway answers at first, the service refused, or the gateway stays away for a minute.
    """
    loop = asyncio.get_running_loop()
    lost_at: float | None = None
    while True:
        failure = Failure(_ENDED)
        try:
            target = find()
            async with connect(target) as gateway:
                if lost_at is not None:
                    tell("reconnected")
                    lost_at = None
                try:
                    async for item in open_stream(gateway):
                        yield item
                except grpc.aio.AioRpcError as error:
                    if not _connection_lost(error):
                        raise
                    failure = describe(error, target)
        except Unreachable as error:
            if lost_at is None:
                raise
            failure = error
        if lost_at is None:
            lost_at = loop.time()
            tell("connection lost; reconnecting")
        if loop.time() - lost_at > RECONNECT_FOR:
            raise failure
        await asyncio.sleep(_RETRY)


def _connection_lost(error: grpc.aio.AioRpcError) -> bool:
    reason = reason_of(error)
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return reason in {"", "DRAINING"}
    # A process that is killed can end its streams with these; the service itself always gives a reason.
    return not reason and error.code() in {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}
