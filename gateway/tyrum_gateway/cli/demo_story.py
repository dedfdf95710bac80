"""What the demonstration shows, section by section, and how each is verified."""

import shlex
import uuid
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from tyrum.approval.v1.approval_pb2 import ANSWER_APPROVE, ANSWER_DENY, ResolveApprovalRequest
from tyrum.catalog.v1.catalog_pb2 import PROVIDER_LIFECYCLE_ADMITTED, GetProviderRequest
from tyrum.chat.v1.chat_pb2 import SendMessageRequest
from tyrum.chat.v1.event_pb2 import TURN_STATE_COMPLETED, CallState, Event
from tyrum_gateway.cli.approval_client import get, resolve
from tyrum_gateway.cli.approval_view import ask
from tyrum_gateway.cli.catalog import STATES, lifecycle, providers, show_stages, value_word
from tyrum_gateway.cli.connection import DEADLINE, Gateway, Target, connect
from tyrum_gateway.cli.demo_gateway import DemoGateway, demo_gateway
from tyrum_gateway.cli.failure import Failure
from tyrum_gateway.cli.output import heading, say
from tyrum_gateway.cli.projection import Asked, TurnView
from tyrum_gateway.cli.screen import Screen
from tyrum_gateway.cli.stream_items import items
from tyrum_gateway.cli.tables import Column, table
from tyrum_gateway.cli.transcript import events

_TURN_SECONDS = 15.0
_SUMMARY_LINES = 3
_REASON = "not on this machine"


@dataclass(slots=True)
class Turn:
    """One turn as the demonstration saw it."""

    deltas: int = 0
    events: list[Event] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Everything the agent said."""
        return "\n".join(e.assistant_message.text for e in self.events if e.HasField("assistant_message"))

    @property
    def kinds(self) -> list[str]:
        """The kinds of its events in order."""
        return [str(event.WhichOneof("payload")) for event in self.events]

    @property
    def end(self) -> str:
        """The final state of its last call."""
        states = [e.tool_call_finished.state for e in self.events if e.HasField("tool_call_finished")]
        return CallState.Name(states[-1]).removeprefix("CALL_STATE_") if states else "NONE"


class Story:
    """A conversation that goes on from section to section."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.conversation_id = ""

    async def turn(self, text: str, resolve_with: tuple[bool, str] | None = None) -> Turn:
        """Send a message, show its turn and answer its approval with (approve, reason).

        Raises:
            Failure: The turn does not complete, or asks although nobody was to be asked.
        """
        say(f"$ tyrum chat {shlex.quote(text)}")
        request = SendMessageRequest(
            conversation_id=self.conversation_id, request_id=str(uuid.uuid4()), text=text
        )
        turn, view, screen = Turn(), TurnView(), Screen()
        stream = self._gateway.chat.SendMessage(
            request, metadata=self._gateway.metadata, timeout=_TURN_SECONDS
        )
        async for item in items(stream):
            if item.HasField("accepted"):
                self.conversation_id = item.accepted.conversation_id
                continue
            turn.deltas += item.HasField("delta")
            if item.HasField("event"):
                turn.events.append(item.event)
            pieces = view.feed(item)
            screen.show(pieces)
            for piece in pieces:
                if isinstance(piece, Asked):
                    await self._answer(piece.approval_id, resolve_with)
        screen.end_line()
        verify(view.state == TURN_STATE_COMPLETED, f"the turn did not complete: {view.reason}")
        return turn

    async def _answer(self, approval_id: str, resolve_with: tuple[bool, str] | None) -> None:
        if resolve_with is None:
            raise Failure(f"`{approval_id}` asks although a rule should have decided")
        approve, reason = resolve_with
        approval = await get(self._gateway, approval_id)
        if approve:
            ask(approval)
        else:
            say("\n".join([*approval.summary.splitlines()[:_SUMMARY_LINES], "…"]))
        verb = "approve" if approve else "deny"
        say(
            f"$ tyrum approvals {verb} {approval_id}" + (f" --reason {shlex.quote(reason)}" if reason else "")
        )
        request = ResolveApprovalRequest(
            approval_id=approval_id,
            answer=ANSWER_APPROVE if approve else ANSWER_DENY,
            digest=approval.digest,
            reason=reason,
        )
        await resolve(self._gateway, request)


def verify(holds: bool, otherwise: str) -> None:
    """End the demonstration when something is not as it was just claimed.

    Raises:
        Failure: It is not.
    """
    if not holds:
        raise Failure(f"the demonstration failed: {otherwise}")


async def tell(directory: Path) -> None:
    """Show everything.

    Raises:
        Failure: A section did not show what it claims.
    """
    async with demo_gateway(directory) as process:
        _section("1. A provider is admitted before anything may bind to it")
        target = await process.start()
        async with connect(target) as gateway:
            await _admission(gateway)
            story = Story(gateway)
            await _text(story)
            await _permitted(story)
            await _approved(story)
            await _denied(story)
            before = [_bytes(event) async for event in events(gateway, story.conversation_id)]
        await _killed(process, story.conversation_id, before)
    say("")
    heading("Done: everything above was verified while it was shown.")
    say("Try it yourself: `tyrum serve` in one terminal, `tyrum chat` in another.")


def _section(title: str) -> None:
    say("")
    heading(f"== {title} ==")


async def _admission(gateway: Gateway) -> None:
    for item in await providers(gateway):
        response = await gateway.catalog.GetProvider(
            GetProviderRequest(name=item.name), metadata=gateway.metadata, timeout=DEADLINE
        )
        build = f"{item.provider_id} {item.implementation_version}"
        say(f"{item.name}: {build}, {item.contract}, {lifecycle(item)}")
        show_stages(response.stages)
        say("")
        table(
            ("STATE", "VALUE", Column("WHY", wraps=True)),
            [(s.state, value_word(s.value), s.reason) for s in item.states],
        )
        verify(item.lifecycle == PROVIDER_LIFECYCLE_ADMITTED, f"it was not admitted: {item.reason}")
        verify(tuple(state.state for state in item.states) == STATES, "the six states are not complete")
        values = {state.state: value_word(state.value) for state in item.states}
        verify(all(values[name] == "yes" for name in STATES[:5]), "an admitted provider lacks a state")


async def _text(story: Story) -> None:
    _section("2. A turn streams text")
    turn = await story.turn("hello")
    verify(turn.deltas > 1, "the text did not stream")
    verify(bool(turn.text), "there is no text")
    say(f"({turn.deltas} deltas while it was generated, one durable message)")


async def _permitted(story: Story) -> None:
    _section("3. A rule lets a tool call through")
    turn = await story.turn("/run printf '%s\\n' 'a rule allows this'")
    verify("approval_requested" not in turn.kinds, "it asked")
    verify(turn.end == "SUCCEEDED", f"the call is {turn.end}")
    verify("a rule allows this" in turn.text, "the agent did not see the output")


async def _approved(story: Story) -> None:
    _section("4. No rule names it: it waits for a human, who approves")
    turn = await story.turn("/run uname -s", (True, "harmless"))
    verify("approval_requested" in turn.kinds, "it did not ask")
    verify(turn.end == "SUCCEEDED", f"the call is {turn.end}")
    verify("Linux" in turn.text, "the agent did not see the output")


async def _denied(story: Story) -> None:
    _section("5. A human denies, and the agent learns why")
    turn = await story.turn("/run touch should-not-exist", (False, _REASON))
    verify(turn.end == "DENIED", f"the call is {turn.end}")
    verify("tool_call_started" not in turn.kinds, "it ran although it was denied")
    verify(_REASON in turn.text, "the reason did not reach the agent")
    _section("6. A rule denies, and nobody is asked")
    turn = await story.turn("/run rm -rf workspace")
    verify(turn.end == "DENIED", f"the call is {turn.end}")
    verify("approval_requested" not in turn.kinds, "it asked")
    verify("files are not removed here" in turn.text, "the rule's reason did not reach the agent")


def _named(event: Event) -> str:
    kind = str(event.WhichOneof("payload")).replace("_", " ")
    return f"{event.sequence} {kind}"


def _bytes(event: Event) -> bytes:
    return event.SerializeToString(deterministic=True)


async def _killed(process: DemoGateway, conversation_id: str, before: list[bytes]) -> None:
    _section("7. SIGKILL, a new start, the same transcript")
    old = process.pid
    await process.kill()
    say(f"$ kill -9 {old}")
    target: Target = await process.start()
    say(f"$ tyrum serve   # process {process.pid}")
    async with connect(target) as gateway:
        found = [event async for event in events(gateway, conversation_id)]
        after = [_bytes(event) for event in found]
        verify(after == before, f"{len(before)} events before, {len(after)} after, or they differ")
        say(f"{len(after)} events read back, byte for byte the same:")
        for turn_id, of_turn in groupby(found, key=lambda event: event.turn_id):
            say(f"{turn_id}  " + ", ".join(_named(event) for event in of_turn))
        story = Story(gateway)
        story.conversation_id = conversation_id
        say("")
        await story.turn("and the conversation goes on")
