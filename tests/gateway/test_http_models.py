"""Turns of a real gateway whose model is behind HTTP, in both protocols."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support import configs
from tests.support.client import DEADLINE, Client, connected, finished, kinds
from tests.support.contents import contents
from tests.support.gateway import RunningGateway
from tests.support.model_server import (
    KEY,
    PROTOCOLS,
    Call,
    Cut,
    Ending,
    Expect,
    ModelServer,
    Refuse,
    Step,
    Usage,
)
from tests.support.model_server.gateway import asking
from tyrum.chat.v1 import chat_pb2, event_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")

COUNT = Call("process_run", '{"argv": ["tee", "-a", "counted"], "stdin": "x\\n"}')
BUSY = Refuse(429, {"retry-after-ms": "20"})
LONG = Refuse(429, {"retry-after": "50"})


@dataclass(frozen=True, slots=True)
class Place:
    """A gateway and what its model says."""

    gateway: RunningGateway
    server: ModelServer
    scenario: str

    def play(self, *steps: Step) -> None:
        """Set what the model answers from now on."""
        self.server.play(self.scenario, *steps)

    @property
    def calls(self) -> int:
        """How often the model was asked since then."""
        return self.server.calls(self.scenario)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[ModelServer]:
    """One model server for this file."""
    async with ModelServer() as running:
        yield running


def placed(directory: Path, server: ModelServer, protocol: str) -> Iterator[Place]:
    """Run a gateway that asks in a protocol."""
    with asking(directory, server, protocol, protocol) as gateway:
        yield Place(gateway, server, protocol)


@pytest.fixture(scope="module")
def openai_place(tmp_path_factory: pytest.TempPathFactory, server: ModelServer) -> Iterator[Place]:
    """One gateway for this file and protocol."""
    yield from placed(tmp_path_factory.mktemp("openai"), server, "openai")


@pytest.fixture(scope="module")
def anthropic_place(tmp_path_factory: pytest.TempPathFactory, server: ModelServer) -> Iterator[Place]:
    """One gateway for this file and protocol."""
    yield from placed(tmp_path_factory.mktemp("anthropic"), server, "anthropic")


@pytest.fixture(params=PROTOCOLS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Each protocol in turn; whatever a request had wrong ends the test."""
    chosen: Place = request.getfixturevalue(f"{request.param}_place")
    (chosen.gateway.state_dir / "workspaces/default/counted").unlink(missing_ok=True)
    yield chosen
    assert not chosen.server.problems


def usage_of(gateway: RunningGateway, turn_id: str) -> tuple[int, int, int]:
    """Read what a turn used, as it is stored."""
    query = "SELECT input_tokens, output_tokens, usage_complete FROM turns WHERE turn_id = ?"
    database = sqlite3.connect(f"file:{gateway.state_dir / 'tyrum.sqlite3'}?mode=ro", uri=True)
    with contextlib.closing(database):
        (row,) = database.execute(query, (turn_id,)).fetchall()
    return int(row[0]), int(row[1]), int(row[2])


def everything_written(gateway: RunningGateway) -> bytes:
    """All bytes that the gateway left behind: state, log, workspace."""
    files = contents(gateway.state_dir.parent)
    assert any(path.name == "tyrum.sqlite3" for path in files)
    return b"\n".join(files.values())


def ended(events: list[event_pb2.Event]) -> tuple[event_pb2.TurnState.ValueType, str]:
    """How a turn ended, and why."""
    assert kinds(events)[-1] == "turn_finished"
    return events[-1].turn_finished.state, events[-1].turn_finished.reason


async def test_a_turn_with_a_tool_call(place: Place) -> None:
    """Busy once, then a call that runs once, then the answer; tokens add up, and the key is nowhere."""
    gateway = place.gateway
    place.play(
        Step(fault=BUSY),  # what the server says of it is logged
        Step(text=("Counting. ",), calls=(COUNT,), fragments=6, usage=Usage(100, 20)),
        Step(text=("Done.",), usage=Usage(150, 5), expect=Expect(result=("exit code 0",), absent=(KEY,))),
    )
    async with connected(gateway) as client:
        accepted, events = await client.turn("count, please")
    assert ended(events)[0] == event_pb2.TURN_STATE_COMPLETED
    assert kinds(events).count("attempt_abandoned") == 1
    assert "is busy (HTTP 429). It says: CANARY of the server" in gateway.log
    assert [call.state for call in finished(events)] == [event_pb2.CALL_STATE_SUCCEEDED]
    assert configs.count(gateway.state_dir) == 1
    assert place.calls == 3
    assert usage_of(gateway, accepted.turn_id) == (250, 25, 1)
    shown = gateway.tyrum("config", "show", str(gateway.config), "--output", "json")
    assert KEY not in f"{shown.stdout}{shown.stderr}{gateway.log}"
    assert KEY.encode() not in everything_written(gateway)


async def test_what_a_model_gets_wrong_is_told_and_never_run(place: Place) -> None:
    """An unknown tool is rejected and told; malformed arguments, a cut and a refusal run nothing."""
    unknown = Call("format_disk", "{}")
    gateway = place.gateway
    place.play(
        Step(calls=(unknown,)),
        Step(text=("Sorry.",), expect=Expect(result=("there is no tool `format_disk`",))),
        *(Step(calls=(COUNT, Call("process_run", '{"argv": ['))) for _ in range(3)),
        Step(text=("Half",), calls=(COUNT,), fault=Cut(None)),
        Step(calls=(COUNT,), ending=Ending.REFUSAL),
        Step(fault=Refuse(401)),
    )
    async with connected(gateway) as client:
        _, rejected = await client.turn("one")
        malformed, abandoned = await client.turn("two")
        _, cut = await client.turn("three")
        _, refused = await client.turn("four")
        _, locked = await client.turn("five")
    assert ended(rejected)[0] == event_pb2.TURN_STATE_COMPLETED
    assert "no JSON object" in ended(abandoned)[1]
    assert kinds(abandoned).count("attempt_abandoned") == 3
    assert usage_of(gateway, malformed.turn_id) == (33, 21, 1)
    (partial,) = [event.assistant_message for event in cut if event.HasField("assistant_message")]
    assert (partial.text, partial.incomplete) == ("Half", True)
    assert "broke off" in ended(cut)[1]
    assert "declined" in ended(refused)[1]
    assert "`MODEL_KEY`" in ended(locked)[1]
    assert "CANARY" not in str([*rejected, *abandoned, *cut, *refused, *locked])
    assert not [line for line in gateway.log.splitlines() if "CANARY" in line and "HTTP 401" in line]
    assert configs.count(gateway.state_dir) == 0
    assert place.calls == 8


async def waiting(client: Client, place: Place, text: str) -> str:
    """Send a message whose first attempt is refused; return its turn once the next one is awaited."""
    stream = client.send(text)
    accepted = (await anext(stream)).accepted
    await client.until(accepted.conversation_id, "attempt_abandoned")
    await stream.aclose()
    assert place.calls == 1
    return f"{accepted.conversation_id} {accepted.turn_id}"


async def test_a_turn_that_waits_for_its_model_can_be_cancelled_at_once(openai_place: Place) -> None:
    """The wait that a server asks for holds up neither a cancel nor the next turn."""
    place = openai_place
    place.play(Step(fault=LONG), Step(text=("Hello.",)))
    async with connected(place.gateway) as client, asyncio.timeout(30):
        conversation, turn = (await waiting(client, place, "one")).split()
        request = chat_pb2.CancelTurnRequest(turn_id=turn)
        await client.chat.CancelTurn(request, metadata=client.metadata, timeout=DEADLINE)
        events = await client.until(conversation, "turn_finished")
        assert ended(events)[0] == event_pb2.TURN_STATE_CANCELLED
        _, following = await client.turn("two", conversation)
    assert ended(following)[0] == event_pb2.TURN_STATE_COMPLETED
    assert place.calls == 2


async def test_a_turn_that_waits_for_its_model_is_tried_again_after_a_restart(
    openai_place: Place,
) -> None:
    """The wait is not durable and need not be: the next gateway simply asks."""
    place = openai_place
    place.play(Step(fault=LONG), Step(text=("Hello again.",)))
    async with connected(place.gateway) as client, asyncio.timeout(30):
        conversation, _ = (await waiting(client, place, "one")).split()
    place.gateway.restart()
    async with connected(place.gateway) as client, asyncio.timeout(30):
        events = await client.until(conversation, "turn_finished")
    assert ended(events)[0] == event_pb2.TURN_STATE_COMPLETED
    assert place.calls == 2
