"""While a model and a client send what takes long to read, an honest caller is served."""

import asyncio
import json
import time
from collections.abc import Awaitable, Iterator

import pytest

from tests.support import configs
from tests.support.client import DEADLINE, Client, connected, finished
from tests.support.gateway import RunningGateway, serving
from tyrum.identity.v1 import identity_pb2

BOUND = 5.0
"""Seconds; far above what was measured (below 0.5 s), and far below what a held loop took (97 s)."""

MIXED = "a \u202e\u200b'\"\\$(`{*?;&|<\n\x01é漢"
LINKS = {"argv": ["cat", *[f"l{number}/x" for number in range(10)]]}
HOSTILE = {
    "links": LINKS,
    "argv": {"argv": ["true", *[(MIXED * 40)[:700]] * 255]},
    "names": {"argv": ["true", *[f"--a=@{'x/' * 200}{number}" for number in range(200)]]},
    "program": {"argv": ["/usr/bin/../" * 8_000 + "bin/true"]},
    "shell": {"shell": "true;" * 3_200},
    "braces": {"shell": "echo " + "{a,b}" * 3_000},
    "cwd": {"argv": ["true"], "cwd": "a/" * 2_000},
    "env": {"argv": ["true"], "env": {f"N{number}": (MIXED * 200)[:800] for number in range(64)}},
    "stdin": {"argv": ["cat"], "stdin": (MIXED * 6_000)[:30_000]},
}
"""Each is refused, denied or opaque; the only rule denies, so that nothing waits for a human."""

RULES = """\
      - id: none
        decision: deny
        author: the test
        match: {tool: process.run}
"""


def script() -> str:
    """One scenario for each field, and one that says something to anything else."""
    scenarios = [
        {
            "user": name,
            "steps": [
                {"calls": [{"tool": "process.run", "arguments": arguments}]},
                {"deltas": ["Done."]},
            ],
        }
        for name, arguments in HOSTILE.items()
    ]
    anything = {"user": {"prefix": ""}, "steps": [{"deltas": ["Said."]}]}
    return json.dumps({"version": 1, "scenarios": [*scenarios, anything]})


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway whose workspace holds a tree of links, each of them a long way."""
    directory = tmp_path_factory.mktemp("hostile")
    with serving(directory, configs.write(directory, script=script(), rules=RULES)) as running:
        workspace = running.state_dir / "workspaces/default"
        deep, back = "d/" * 400, "../" * 400
        (workspace / deep).mkdir(parents=True)
        for number in range(30):
            (workspace / f"l{number}").symlink_to(f"{deep}{back}l{number + 1}")
        yield running


async def slowest(client: Client, load: Awaitable[object]) -> float:
    """Ask who the caller is, again and again while there is load; return the longest wait in seconds."""
    task, waits = asyncio.ensure_future(load), list[float]()
    while not task.done() or not waits:
        before = time.monotonic()
        await client.identity.WhoAmI(identity_pb2.WhoAmIRequest(), metadata=client.metadata, timeout=DEADLINE)
        waits.append(time.monotonic() - before)
        await asyncio.wait([task], timeout=0.01)
    await task
    return max(waits)


async def test_an_honest_caller_is_answered_beside_every_hostile_call(gateway: RunningGateway) -> None:
    """A model's call with hostile values of each field ends, and WhoAmI is answered meanwhile."""
    async with connected(gateway) as client, connected(gateway) as honest:
        for name in HOSTILE:
            turn = asyncio.ensure_future(client.turn(name))
            worst = await slowest(honest, turn)
            (call,) = finished(turn.result()[1])
            assert call.content, name
            assert worst < BOUND, name
            if name == "links":
                assert "2,000 looks" in call.content


async def test_an_honest_caller_is_answered_beside_hostile_messages(gateway: RunningGateway) -> None:
    """Sixteen messages at once of every kind of character are said, and WhoAmI is answered meanwhile."""
    texts = [(MIXED * 4_000)[:20_000], "[" * 20_000, "'" * 20_000, "e\u0301" * 10_000]
    async with connected(gateway) as client, connected(gateway) as honest:
        turns = asyncio.gather(*[client.turn(text.replace("\x01", "")) for text in texts * 4])
        worst = await slowest(honest, turns)
        assert all(events for _, events in turns.result())
        assert worst < BOUND
