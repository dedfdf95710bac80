"""Turns in a conversation that many watch and nobody reads, beside turns in one that nobody watches."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio

from benchmarks import gateway
from benchmarks.client import BenchClient
from benchmarks.report import Report
from tyrum.chat.v1 import chat_pb2
from tyrum.chat.v1.chat_pb2_grpc import ChatServiceStub

WATCHERS = 20
BOUND = 1.1
GROUP = 5


@contextlib.asynccontextmanager
async def watching(serving: gateway.BenchGateway, conversation: str) -> AsyncIterator[None]:
    """Open watchers of what comes from now on, each on a connection of its own; they never read."""
    options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
    metadata = (("authorization", f"Bearer {serving.token}"),)
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(grpc.aio.insecure_channel(serving.address, options=options))
        found = await ChatServiceStub(first).GetConversation(
            chat_pb2.GetConversationRequest(conversation_id=conversation), metadata=metadata, timeout=30
        )
        request = chat_pb2.WatchRequest(
            conversation_id=conversation, after_sequence=found.conversation.last_sequence
        )
        for _ in range(WATCHERS):
            channel = grpc.aio.insecure_channel(serving.address, options=options)
            await stack.enter_async_context(channel)
            call = ChatServiceStub(channel).Watch(request, metadata=metadata)
            stack.callback(call.cancel)
        yield


async def measure(report: Report, scratch: Path, config: Path, repeats: int) -> None:
    """Alternate groups of turns, with the watchers there and gone; report the ratio of the medians.

    Groups, because what watchers cost after a turn would otherwise fall on the next one without them.
    """
    report.section(f"turn with {WATCHERS} watchers that never read")
    serving = await gateway.start(scratch / "watchers", config)
    client = BenchClient(serving.address, serving.token)
    alone, watched = [], []
    _, conversation = await client.turn("noop")
    for _ in range(repeats // GROUP):
        await client.turn("noop", conversation)
        alone += [(await client.turn("noop", conversation))[0] for _ in range(GROUP)]
        async with watching(serving, conversation):
            for _ in range(2):  # until all of them have arrived
                await client.turn("noop", conversation)
            watched += [(await client.turn("noop", conversation))[0] for _ in range(GROUP)]
    await client.channel.close()
    await serving.stop()
    without, beside = report.median("nobody watches", alone), report.median("watched", watched)
    report.ratio("watched / nobody watches", beside / without, BOUND)
