"""The six criteria of an execution backend, black-box on a running gateway: here for `native`.

Criterion 2 is two rows: 2a is the projection over gRPC, 2b the same at a web edge.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import noop_gateway
from tests.support.client import connected, finished, kinds
from tests.support.gateway import RunningGateway
from tests.support.model_server import PROTOCOLS, Call, Expect, ModelServer, Request, Step
from tests.support.model_server.gateway import write
from tests.support.nursery import ForkedGateway, Nursery
from tests.support.questions import asked, ended
from tyrum.chat.v1 import event_pb2
from tyrum_gateway.domain.prompt import WINDOW
from tyrum_gateway.models.conversation import EARLIER

NOTE = Call("process_run", '{"argv": ["tee", "-a", "noted"], "stdin": "x\\n"}')
LOOK = Call("bench_noop", "{}")
TOOLS = frozenset({"process_run", "bench_noop"})
FACT = "the harbour master is called Okonkwo"
EVENTS_OF_A_TEXT_TURN = 3

both = pytest.mark.parametrize("protocol", PROTOCOLS)


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Where the gateways of these tests come from."""
    nursery = Nursery(noop_gateway.__name__, tmp_path_factory.mktemp("nursery"))
    try:
        yield nursery
    finally:
        nursery.close()


@dataclass(frozen=True, slots=True)
class Native:
    """How a test runs a gateway without any standing rule, its model the scenario `go`."""

    directory: Path
    nursery: Nursery

    @contextmanager
    def gateway(self, server: ModelServer, protocol: str) -> Iterator[RunningGateway]:
        """Run it."""
        config = write(self.directory, server, protocol, "go", rules="      []")
        gateway = ForkedGateway(self.directory / "state", config, nursery=self.nursery)
        try:
            gateway.start()
            yield gateway
        finally:
            gateway.kill()


@pytest.fixture
def native(tmp_path: Path, nursery: Nursery) -> Native:
    """Run gateways in the test's own directory."""
    return Native(tmp_path, nursery)


def noted(gateway: RunningGateway) -> int:
    """Count how often the state-changing command has run."""
    file = gateway.state_dir / "workspaces" / "default" / "noted"
    return file.read_text().count("x") if file.exists() else 0


@both
async def test_1_a_text_turn_is_in_the_transcript(native: Native, protocol: str) -> None:
    """Criterion 1: the reply to a prompt is persisted in the transcript, and is there after a crash."""
    async with ModelServer() as server:
        server.play("go", Step(text=("A repl", "y."), expect=Expect(contains=("a prompt",))))
        with native.gateway(server, protocol) as gateway:
            async with connected(gateway) as client:
                accepted, _ = await client.turn("a prompt")
            gateway.restart()
            async with connected(gateway) as client:
                events = await client.events(accepted.conversation_id)
    assert kinds(events) == ["user_message", "assistant_message", "turn_finished"]
    assert events[1].assistant_message.text == "A reply."


async def test_2a_partial_output_and_tool_activity_are_streamed(native: Native) -> None:
    """Criterion 2a: text is seen while the model still speaks, and every change of a call is a notice."""
    async with ModelServer() as server:
        server.play("go", Step(text=("Half a",), calls=(NOTE,), barrier="spoken"), Step(text=("Done.",)))
        with native.gateway(server, "openai") as gateway:
            async with connected(gateway) as client:
                seen: list[str] = []
                async for item in client.send("a prompt"):
                    match item.WhichOneof("item"):
                        case "delta" | "partial" as kind:
                            seen.append("text")
                            assert "assistant_message" not in seen or kind != "partial"
                            server.release("spoken")
                        case "event":
                            seen.append(item.event.WhichOneof("payload") or "")
                            if item.event.HasField("approval_requested"):
                                approval = item.event.approval_requested.approval_id
                                await client.resolve(approval, approve=True)
                        case _:
                            pass
    notices = [entry for entry in seen if entry != "text"]
    assert seen[0] == "text", "nothing was seen before the step was over"
    assert notices == [
        "assistant_message",
        "tool_call_proposed",
        "tool_call_decided",
        "approval_requested",
        "approval_resolved",
        "tool_call_started",
        "tool_call_finished",
        "assistant_message",
        "turn_finished",
    ]


def test_2b_at_a_web_edge() -> None:
    """Criterion 2b: the same projection at a web edge, which does not exist yet."""
    pytest.skip("PLANNED: criterion 2b, the web edge of chat.ui-message.stream, is not built")


@both
@pytest.mark.parametrize("approve", [True, False])
async def test_3_a_call_waits_for_its_approval(native: Native, protocol: str, approve: bool) -> None:
    """Criterion 3: the call pauses; approving resumes it, denying reaches the model with its reason."""
    told = Expect(result=("exit code 0",) if approve else ("not on my watch",))
    async with ModelServer() as server:
        server.play("go", Step(calls=(NOTE,)), Step(text=("I see.",), expect=told))
        with native.gateway(server, protocol) as gateway:
            async with connected(gateway) as client:
                question = await asked(client, "a prompt")
                assert noted(gateway) == 0
                await client.resolve(question.approvals[0], approve=approve, reason="not on my watch")
                await ended(client, question)
                assert noted(gateway) == approve


async def test_4_the_transcript_needs_nothing_of_the_backend(native: Native) -> None:
    """Criterion 4: the history is whole without the providers' files; `native` itself keeps none."""
    async with ModelServer() as server:
        server.play("go", Step(calls=(LOOK,)), Step(text=("Done.",)), Step(text=("More.",)))
        with native.gateway(server, "openai") as gateway:
            async with connected(gateway) as client:
                accepted, _ = await client.turn("a prompt")
                before = await client.events(accepted.conversation_id)
            gateway.kill()
            _delete_continuity(gateway)
            gateway.start()
            async with connected(gateway) as client:
                assert await client.events(accepted.conversation_id) == before
                await client.turn("more", accepted.conversation_id)


@both
async def test_5_a_fresh_context_is_seeded_from_the_checkpoint(native: Native, protocol: str) -> None:
    """Criterion 5: messages continue one context; what the window has lost comes by the checkpoint only."""
    turns = WINDOW // EVENTS_OF_A_TEXT_TURN + 1
    continued = Step(text=("Noted.",), expect=Expect(contains=(FACT, "message 0")))

    def only_by_checkpoint(request: Request) -> None:
        holders = [text for text in request.texts if FACT in text]
        assert len(holders) == 1
        assert holders[0].startswith(EARLIER)

    async with ModelServer() as server:
        steps = [Step(text=("Noted.",)), continued, *(Step(text=("Noted.",)) for _ in range(turns - 1))]
        last = Step(text=("Okonkwo.",), expect=Expect(check=only_by_checkpoint))
        server.play("go", *steps, last)
        with native.gateway(server, protocol) as gateway:
            async with connected(gateway) as client:
                conversation = (await client.turn(FACT))[0].conversation_id
                for number in range(turns):
                    await client.turn(f"message {number}", conversation)
            gateway.kill()
            _delete_continuity(gateway)
            gateway.start()
            async with connected(gateway) as client:
                _, events = await client.turn("What is he called?", conversation)
        assert server.problems == []
        assert events[-1].turn_finished.state == event_pb2.TURN_STATE_COMPLETED


async def test_6_all_tools_and_no_more_under_policy(native: Native) -> None:
    """Criterion 6: the kernel's list of tools is what the model gets; what changes state waits for its
    approval, its denial is a message, and what only reads is recorded though nobody was asked.
    """
    offered = Expect(tools=TOOLS)
    async with ModelServer() as server:
        server.play(
            "go",
            Step(calls=(LOOK, NOTE), expect=offered),
            Step(text=("Done.",), expect=Expect(tools=TOOLS, result=("denied by",))),
        )
        with native.gateway(server, "openai") as gateway:
            async with connected(gateway) as client:
                question = await asked(client, "a prompt")
                assert noted(gateway) == 0
                await client.resolve(question.approvals[0], approve=False)
                events = await ended(client, question)
    decided = [event.tool_call_decided for event in events if event.HasField("tool_call_decided")]
    assert [call.rule_id for call in decided] == ["default.read_only", "default.state_changing"]
    assert [call.state for call in finished(events)] == [
        event_pb2.CALL_STATE_SUCCEEDED,
        event_pb2.CALL_STATE_DENIED,
    ]
    assert noted(gateway) == 0


def _delete_continuity(gateway: RunningGateway) -> None:
    """Delete what a backend could continue from; `native` keeps nothing beside the database."""
    providers = gateway.state_dir / "providers"
    deadline = time.monotonic() + 30
    while providers.exists():  # what a provider leaves, it still tidies up for a moment
        shutil.rmtree(providers, ignore_errors=True)
        assert time.monotonic() < deadline
    kept = {file.name for file in gateway.state_dir.iterdir()}
    assert not {name for name in kept if "session" in name or "cache" in name}
