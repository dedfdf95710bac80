"""What a turn costs, as constants: commits, rows, calls of the provider."""

import asyncio
import hashlib
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks import history
from tests.support import configs, counting_gateway
from tests.support.client import Client, connected, finished
from tests.support.gateway import RunningGateway
from tyrum.chat.v1 import event_pb2
from tyrum_gateway.domain.prompt import WINDOW

LAUNCHER = (sys.executable, counting_gateway.__file__)
TOKEN = "t" * 43
EVENTS_OF_A_TURN = 8
PAUSING = """\
scenarios:
  - user: pause
    steps:
      - calls: [{tool: process.run, arguments: {argv: [sleep, "0.1"]}}]
      - deltas: ["Paused."]
"""
"""A command that is short, and yet longer than what ends before its start can be told."""
PAUSING_RULE = """\
      - id: pause
        decision: allow
        author: the test
        match: {tool: process.run, program: /usr/bin/sleep, argv: ["0.1"]}
"""
PAST = (0, 200, 10_000)
"""Events of the conversations that exist when the gateway starts."""


@dataclass(frozen=True, slots=True)
class Counting:
    """A gateway that counts, and conversations by the length of their past."""

    gateway: RunningGateway
    conversations: dict[int, str]

    def counters(self) -> list[dict[str, Any]]:
        """One entry for each message, taken before it was accepted."""
        text = (self.gateway.state_dir.parent / "counters").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counting]:
    """Write the past, then start the gateway."""
    directory = tmp_path_factory.mktemp("constants")
    state = directory / "state"
    state.mkdir(mode=0o700)
    (state / "operator.token").write_text(TOKEN)
    (state / "operator.token").chmod(0o600)

    async def write() -> dict[int, str]:
        digest = hashlib.sha256(TOKEN.encode()).hexdigest()
        return {events: await history.write(state / "tyrum.sqlite3", events, digest) for events in PAST}

    conversations = asyncio.run(write())
    config = configs.write(
        directory,
        script=configs.COUNTING_SCRIPT.replace("scenarios:\n", PAUSING),
        rules=configs.COUNTING_RULE + PAUSING_RULE,
    )
    gateway = RunningGateway(state, config, launcher=LAUNCHER)
    try:
        gateway.start()
        yield Counting(gateway, conversations)
    finally:
        gateway.kill()


async def counted(client: Client, counting: Counting, conversation: str, turns: int) -> list[dict[str, int]]:
    """Take turns with one call; return what each cost."""
    first = len(counting.counters()) if (counting.gateway.state_dir.parent / "counters").exists() else 0
    for _ in range(turns):
        _, events = await client.turn("count", conversation)
        assert [call.state for call in finished(events)] == [event_pb2.CALL_STATE_SUCCEEDED]
    await client.turn("end", conversation)  # its acceptance notes the end of the last counted turn
    entries = counting.counters()[first:]
    costs = []
    for before, after in itertools.pairwise(entries):
        cost = {name: after[name] - before[name] for name in ("commits", "rows", "followed")}
        costs.append(cost)
    assert len(costs) == turns
    return costs


async def test_a_turn_with_one_call_is_five_commits(counting: Counting) -> None:
    """Accept; claim; decide and begin; result and next attempt; settle. No more, no fewer, every time."""
    async with connected(counting.gateway) as client:
        _, conversation = "", (await client.turn("start"))[0].conversation_id
        costs = await counted(client, counting, conversation, 5)
    assert [cost["commits"] for cost in costs] == [5] * 5


async def test_a_short_call_is_two_calls_of_the_provider(counting: Counting) -> None:
    """Start and release: a start waits for an end that comes soon; no other call is made for it."""
    async with connected(counting.gateway) as client:
        conversation = (await client.turn("start"))[0].conversation_id
        for _ in range(5):  # an end that a busy machine delays by seconds is waited for in another call
            await settled_calls(client, counting, conversation)
            before = Counter(counting.counters()[-1]["calls"])
            for _ in range(6):
                await client.turn("pause", conversation)
            await settled_calls(client, counting, conversation)
            made = Counter(counting.counters()[-1]["calls"]) - before
            if "WaitProcess" not in made:
                break
    assert made == {"StartProcess": 6, "ReleaseProcess": 6}


async def settled_calls(client: Client, counting: Counting, conversation: str) -> None:
    """Take turns without a call until nothing more is asked of the provider: releases follow the commit."""
    async with asyncio.timeout(50):
        while True:
            await client.turn("wait", conversation)
            calls = counting.counters()[-1]["calls"]
            if calls.get("StartProcess", 0) == calls.get("ReleaseProcess", 0):
                return


async def test_rows_read_do_not_grow_with_the_past(counting: Counting) -> None:
    """The first turn after a start reads one window of the past, however long it is; later ones read none."""
    first: dict[int, int] = {}
    later: set[int] = set()
    async with connected(counting.gateway) as client:
        for events, conversation in counting.conversations.items():
            costs = await counted(client, counting, conversation, 3)
            first[events] = costs[0]["rows"]
            later |= {cost["rows"] for cost in costs[1:]}
            # A follower that comes late reads what the tail of its conversation no longer has: its own turn.
            assert all(cost["followed"] <= EVENTS_OF_A_TURN for cost in costs), costs
    earlier = 2  # events of the one short turn that the youngest conversation consists of
    assert first[10_000] == first[200]
    assert first[200] == first[0] + WINDOW - earlier, "the past is read once"
    assert later == {0}, "what is remembered is not read, nor what a commit has just told"
