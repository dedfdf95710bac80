"""The items of a chat stream, whichever responses carried them."""

from collections.abc import AsyncIterable, AsyncIterator

from tyrum.chat.v1.chat_pb2 import SendMessageResponse, StreamItem, WatchResponse


async def items(
    responses: AsyncIterable[SendMessageResponse] | AsyncIterable[WatchResponse],
) -> AsyncIterator[StreamItem]:
    """Yield one item after the other."""
    async for response in responses:
        for item in response.items:
            yield item
