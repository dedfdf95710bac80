"""Turns in a conversation that many watch and nobody reads, beside turns that nobody watches.

A watcher that never reads is served until the buffers between it and the gateway are full, and then costs
nothing. Both are measured: full ones, whose past is larger than the buffers, with turns in close succession;
and new ones, which still take everything, with a rest after each turn, because what they get after a turn
would otherwise be counted with the next one.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio

from benchmarks import gateway, history
from benchmarks.client import BenchClient
from benchmarks.report import Report
from tyrum.chat.v1 import chat_pb2
from tyrum.chat.v1.chat_pb2_grpc import ChatServiceStub

WATCHERS = 20
BOUND = 1.1
GROUP = 5
PAST = 800
EARLY = "x" * 16_384
"""Messages that fill the buffers of a stream."""
FILLING_SECONDS = 1.5
REST_SECONDS = 0.12
TOKEN = "bench-token-" + "1" * 32


@dataclass(slots=True)
class Turns:
    """Times of turns without and with watchers, in alternating groups."""

    client: BenchClient
    serving: gateway.BenchGateway
    conversation: str
    rest: float
    after: int | None
    """Where watchers begin; None is the present."""
    alone: list[float] = field(default_factory=list)
    watched: list[float] = field(default_factory=list)

    async def group(self) -> None:
        """Take a group of each."""
        self.alone += await self._turns()
        async with self._watching():
            await asyncio.sleep(FILLING_SECONDS if self.after is not None else self.rest)
            self.watched += await self._turns()
        await asyncio.sleep(self.rest)

    async def _turns(self) -> list[float]:
        await self.client.turn("noop", self.conversation)
        taken = []
        for _ in range(GROUP):
            await asyncio.sleep(self.rest)
            taken.append((await self.client.turn("noop", self.conversation))[0])
        return taken

    @contextlib.asynccontextmanager
    async def _watching(self) -> AsyncIterator[None]:
        """Open watchers, each on a connection of its own; they never read."""
        options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        metadata = (("authorization", f"Bearer {self.serving.token}"),)
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(WATCHERS):
                channel = grpc.aio.insecure_channel(self.serving.address, options=options)
                stub = ChatServiceStub(await stack.enter_async_context(channel))
                after = self.after
                if after is None:
                    asked = chat_pb2.GetConversationRequest(conversation_id=self.conversation)
                    found = await stub.GetConversation(asked, metadata=metadata, timeout=30)
                    after = found.conversation.last_sequence
                request = chat_pb2.WatchRequest(conversation_id=self.conversation, after_sequence=after)
                stack.callback(stub.Watch(request, metadata=metadata).cancel)
            yield


async def measure(report: Report, scratch: Path, config: Path, repeats: int) -> None:
    """Report the ratios of the medians."""
    state = scratch / "watchers"
    state.mkdir(mode=0o700)
    (state / "operator.token").write_text(TOKEN)
    (state / "operator.token").chmod(0o600)
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    past = await history.write(state / "tyrum.sqlite3", PAST, digest, EARLY)
    serving = await gateway.start(state, config)
    client = BenchClient(serving.address, serving.token)
    _, young = await client.turn("noop")
    for name, turns in (
        ("full", Turns(client, serving, past, 0, 0)),
        ("new", Turns(client, serving, young, REST_SECONDS, None)),
    ):
        report.section(f"turn with {WATCHERS} {name} watchers that never read")
        for _ in range(repeats // GROUP):
            await turns.group()
        without = report.median("nobody watches", turns.alone)
        beside = report.median("watched", turns.watched)
        report.ratio("watched / nobody watches", beside / without, BOUND)
    await client.channel.close()
    await serving.stop()
