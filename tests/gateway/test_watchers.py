"""Watchers that do not read, join late or reconnect: bounded memory, every durable event once, in order."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.storage.builders import finish, new, running
from tests.support import configs
from tests.support.client import Client, connected, kinds
from tests.support.gateway import RunningGateway, serving
from tyrum.chat.v1 import chat_pb2, event_pb2
from tyrum_gateway.app.streams import MERGED_BYTES, RING_BYTES, Attempt, Delta, Streams
from tyrum_gateway.app.watch import watch
from tyrum_gateway.domain.ids import ConversationId, TurnId
from tyrum_gateway.domain.transcript import Event
from tyrum_gateway.storage import SqliteStore

WATCHERS = 20
MIB = 1 << 20
EACH = 8 * MIB
"""What a watcher that never reads may cost the gateway."""

SCRIPT = """\
version: 1
scenarios:
  - user: large
    steps:
      - deltas: ["LARGE"]
        repeat: 8
  - user: held
    steps:
      - deltas: ["one ", "two ", "drei ü "]
        barrier: release
        calls:
          - {tool: process.run, arguments: {argv: [tee, -a, counted], stdin: "x\\n"}}
      - deltas: ["four ", "five"]
  - user: overflow
    steps:
      - deltas: ["CHUNK"]
        repeat: 900
  - user: count
    steps:
      - deltas: ["Counting. "]
        calls:
          - {tool: process.run, arguments: {argv: [tee, -a, counted], stdin: "x\\n"}}
      - deltas: ["Do", "ne."]
  - user: {prefix: ""}
    steps:
      - deltas: ["Said."]
"""
SCRIPT = SCRIPT.replace("LARGE", "l" * 100_000).replace("CHUNK", "0123456789abcdef" * 64)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One gateway for this file."""
    directory = tmp_path_factory.mktemp("watchers")
    with serving(directory, configs.write(directory, script=SCRIPT)) as running:
        yield running


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[Client]:
    """The operator."""
    async with connected(gateway) as connection:
        yield connection


class Watcher:
    """A watcher that reads when it is told to, on a connection of its own."""

    def __init__(self, client: Client, conversation: str, after: int = 0) -> None:
        request = chat_pb2.WatchRequest(conversation_id=conversation, after_sequence=after)
        self._call: Any = client.chat.Watch(request, metadata=client.metadata, timeout=55)
        self.items: list[chat_pb2.StreamItem] = []
        self._read: list[chat_pb2.StreamItem] = []

    async def read(self) -> chat_pb2.StreamItem:
        """Read one item."""
        if not self._read:
            self._read = list((await self._call.read()).items)
        item = self._read.pop(0)
        self.items.append(item)
        return item

    async def until_finished(self, turns: int = 1) -> "Watcher":
        """Read until that many turns have ended."""
        seen = 0
        while seen < turns:
            seen += (await self.read()).event.HasField("turn_finished")
        return self

    def end(self) -> None:
        """Disconnect."""
        self._call.cancel()

    @property
    def events(self) -> list[event_pb2.Event]:
        """Durable events in the order they came."""
        return [item.event for item in self.items if item.HasField("event")]


def resident(gateway: RunningGateway) -> int:
    """Memory of the gateway."""
    return int(psutil.Process(gateway.pid).memory_info().rss)


async def test_twenty_watchers_that_never_read_cost_at_most_8_mib_each(
    gateway: RunningGateway, client: Client
) -> None:
    """What a model says is not held for those who do not read it."""
    conversation = (await client.turn("hello"))[0].conversation_id
    await client.turn("large", conversation)
    before = resident(gateway)
    connections = [connected(gateway) for _ in range(WATCHERS)]
    clients = [await connection.__aenter__() for connection in connections]
    watchers = []
    try:
        for one in clients:
            watchers.append(Watcher(one, conversation))
            await watchers[-1].read()
        for _ in range(8):
            await client.turn("large", conversation)
        grown = resident(gateway) - before
        assert grown <= WATCHERS * EACH, f"{grown / WATCHERS / MIB:.1f} MiB each"
    finally:
        for watcher in watchers:
            watcher.end()
        for connection in connections:
            await connection.__aexit__(None, None, None)


async def test_a_long_past_of_long_messages_is_not_held_for_a_watcher_that_never_reads(
    gateway: RunningGateway, client: Client
) -> None:
    """Durable events are pulled as they are read: 15 MiB of past cost a watcher at most 8 MiB."""
    conversation = (await client.turn("hello"))[0].conversation_id
    for _ in range(60):
        await client.turn("x" * 256 * 1024, conversation)
    await asyncio.gather(*(client.events(conversation) for _ in range(2)))
    before = resident(gateway)
    connections = [connected(gateway) for _ in range(WATCHERS)]
    clients = [await connection.__aenter__() for connection in connections]
    try:
        watchers = [Watcher(one, conversation) for one in clients]
        for watcher in watchers:
            await watcher.read()
        await client.turn("hello", conversation)
        grown = resident(gateway) - before
        assert grown <= WATCHERS * EACH, f"{grown / WATCHERS / MIB:.1f} MiB each"
        await watchers[0].until_finished(62)
        assert watchers[0].events == await client.events(conversation)
    finally:
        for connection in connections:
            await connection.__aexit__(None, None, None)


async def test_a_watcher_that_stalls_and_reads_again_misses_deltas_only_and_is_told_once(
    gateway: RunningGateway, client: Client
) -> None:
    """Every durable event once, in order; what was dropped is one gap; deltas after it follow each other."""
    accepted = (await client.turn("hello"))[0]
    conversation = accepted.conversation_id
    async with connected(gateway) as connection:
        watcher = Watcher(connection, conversation, after=accepted.sequence)
        await watcher.read()
        await client.turn("overflow", conversation)
        await client.turn("count", conversation)
        await watcher.until_finished(3)
        last = asyncio.create_task(watcher.read())
        await asyncio.wait([last], timeout=1)
        last.cancel()
        watcher.end()
    everything = await client.events(conversation)
    assert watcher.events == everything[accepted.sequence :]
    gaps = [item.gap.dropped_bytes for item in watcher.items if item.HasField("gap")]
    assert len(gaps) == 1, gaps
    assert gaps[0] > 0
    follow_each_other(watcher.items)


async def test_text_of_a_step_never_overtakes_the_events_of_steps_before(client: Client) -> None:
    """A client can show what it gets as it comes: calls and results of a step stand before the next text."""
    conversation, followed = "", list[chat_pb2.StreamItem]()
    for _ in range(6):
        async for item in client.send("count", conversation):
            conversation = item.accepted.conversation_id or conversation
            followed.append(item)
    step, steps = 0, dict[str, int]()
    texts = 0
    for item in followed:
        payload = item.event.WhichOneof("payload")
        if item.HasField("accepted"):
            step, steps = 0, {}
        elif item.HasField("delta"):
            step = max(step, item.delta.step)
            texts += 1
        elif payload == "tool_call_proposed":
            steps[item.event.tool_call_proposed.call_id] = item.event.tool_call_proposed.step
            assert item.event.tool_call_proposed.step >= step
        elif payload == "assistant_message":
            assert item.event.assistant_message.step >= step
        elif payload == "tool_call_finished":
            assert steps[item.event.tool_call_finished.call_id] >= step
    assert texts >= 6, "no text was streamed: the order was not tested"


def test_small_deltas_cost_a_watcher_no_more_than_their_text() -> None:
    """A quarter of a mebibyte said byte by byte is held as few pieces, and read back as it was said."""
    streams, conversation = Streams(), new(ConversationId)
    attempt = Attempt(new(TurnId), 1, 1)
    said = "".join(chr(ord("a") + number % 26) for number in range(RING_BYTES))
    with streams.subscribe(conversation) as subscription:
        for character in said:
            streams.delta(conversation, attempt, character)
        held = subscription.take()
    pieces = [item for item in held if isinstance(item, Delta)]
    assert len(pieces) == len(held) <= RING_BYTES // MERGED_BYTES
    assert "".join(piece.text for piece in pieces) == said
    assert [piece.offset for piece in pieces] == list(range(0, RING_BYTES, MERGED_BYTES))


async def test_the_end_of_a_turn_reaches_a_watcher_that_is_behind_when_the_gateway_stops(
    tmp_path: Path,
) -> None:
    """What was committed before the streams close comes before the news that they did."""
    async with await SqliteStore.open(tmp_path / "tyrum.db") as store:
        streams, turn = Streams(), await running(store)
        conversation = turn.conversation_id
        stream = watch(store, streams, conversation, 0, until=turn.turn_id)
        assert [type(item) for item in await anext(stream)] == [Event]
        following = asyncio.ensure_future(anext(stream))
        streams.delta(conversation, Attempt(turn.turn_id, 1, 1), "said")
        assert [type(item) for item in await following] == [Delta]
        # It stands at that text and has not looked further when the turn ends and the gateway stops.
        _, events, *_ = await store.commit(finish(turn))
        streams.committed(conversation, events, resting=True)
        streams.close()
        assert [item async for items in stream for item in items] == list(events)


def follow_each_other(items: list[chat_pb2.StreamItem]) -> None:
    """Within an attempt a delta begins where the one before ended, unless a gap stands between them."""
    ends: dict[tuple[str, int, int], int] = {}
    for item in items:
        if item.HasField("gap"):
            ends.clear()
            continue
        kind = item.WhichOneof("item")
        if kind not in {"delta", "partial"}:
            continue
        piece = item.delta if kind == "delta" else item.partial
        attempt = (piece.turn_id, piece.step, piece.attempt)
        assert piece.offset == ends.get(attempt, piece.offset)
        ends[attempt] = piece.offset + len(piece.text.encode())


async def test_who_joins_late_gets_what_was_said_so_far_once(gateway: RunningGateway, client: Client) -> None:
    """One partial with the text before, deltas from where it ends, then the whole as a durable message."""
    release = gateway.state_dir.parent / "release"
    release.unlink(missing_ok=True)
    stream = client.send("held")
    conversation = (await anext(stream)).accepted.conversation_id
    text = ""
    while text != "one two drei ü ":
        heard = await anext(stream)
        text += heard.delta.text or heard.partial.text
    late = Watcher(client, conversation)
    while not (item := await late.read()).HasField("partial"):
        pass
    assert (item.partial.text, item.partial.offset) == (text, 0)
    release.touch()
    await late.until_finished()
    late.end()
    assert [item.WhichOneof("item") for item in late.items].count("partial") == 1
    follow_each_other(late.items)
    said = [event.assistant_message.text for event in late.events if event.HasField("assistant_message")]
    assert said == [text, "four five"]
    assert late.events == await client.events(conversation)


async def test_a_reconnect_at_any_point_shows_every_event_once(client: Client) -> None:
    """Whatever item of a turn was the last one seen, resuming after its sequence completes the transcript."""
    conversation = (await client.turn("hello"))[0].conversation_id
    request = uuid.uuid4().hex
    sent = [item async for item in client.send("count", conversation, request)]
    everything = await client.events(conversation)
    first = sent[0].accepted.sequence
    assert kinds(everything)[first - 1] == "user_message"
    for cut in range(1, len(sent) + 1):
        seen = [item.event for item in sent[:cut] if item.HasField("event")]
        after = seen[-1].sequence if seen else first
        resumed = list[event_pb2.Event]()
        if after < everything[-1].sequence:
            watcher = await Watcher(client, conversation, after).until_finished()
            watcher.end()
            resumed = watcher.events
        assert [*everything[:first], *seen, *resumed] == everything
        # Sending again under the same request id joins the turn from its beginning.
        joined = [item async for item in client.send("count", conversation, request)]
        assert joined[0].accepted == sent[0].accepted
        assert [item.event for item in joined[1:] if item.HasField("event")] == everything[first:]


async def test_reconnecting_in_the_middle_of_a_turn_shows_every_event_once(
    gateway: RunningGateway, client: Client
) -> None:
    """A client that drops its connection after every single item still sees the whole turn, once."""
    (gateway.state_dir.parent / "release").touch()
    stream = client.send("held")
    accepted = (await anext(stream)).accepted
    await stream.aclose()
    seen = list[event_pb2.Event]()
    after = accepted.sequence
    while not (seen and seen[-1].HasField("turn_finished")):
        watcher = Watcher(client, accepted.conversation_id, after)
        while not watcher.events:
            await watcher.read()
        watcher.end()
        seen += watcher.events
        after = seen[-1].sequence
    assert seen == (await client.events(accepted.conversation_id))[accepted.sequence :]
