"""Earlier turns, and what a model is told of each.

Invariant: an output without its call, or a call without its output, never reaches a model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tyrum_gateway.domain.ids import TurnId
from tyrum_gateway.domain.model import AssistantStep, Message, PastCall, ToolOutput, UserText
from tyrum_gateway.domain.transcript import (
    AssistantMessage,
    Event,
    ToolCallFinished,
    ToolCallProposed,
    UserMessage,
)


@dataclass(frozen=True, slots=True)
class PastTurn:
    """The newest events of one turn, or all of them. Its messages are told once, not for every prompt."""

    events: tuple[Event, ...]
    messages: tuple[Message, ...]
    characters: int
    """Length of what may be long in the events."""
    used_tools: bool
    """Whether output of a tool is among them."""


def past_turn(events: Sequence[Event]) -> PastTurn:
    """Tell of one turn."""
    return PastTurn(
        tuple(events),
        tuple(told(events)),
        sum(event.characters for event in events),
        any(isinstance(event.payload, ToolCallFinished) for event in events),
    )


def past_turns(events: Iterable[Event]) -> tuple[PastTurn, ...]:
    """Tell of several turns, one after the other, whatever the order in which their events were recorded."""
    by_turn: dict[TurnId, list[Event]] = {}
    for event in events:
        by_turn.setdefault(event.turn_id, []).append(event)
    return tuple(map(past_turn, by_turn.values()))


def newest(turns: tuple[PastTurn, ...], limit: int) -> tuple[PastTurn, ...]:
    """Keep the newest events; of the turn in which they begin, only those are told."""
    excess = sum(len(turn.events) for turn in turns) - limit
    for position, turn in enumerate(turns):
        if excess <= 0:
            return turns[position:]
        if excess < len(turn.events):
            return (past_turn(turn.events[excess:]), *turns[position + 1 :])
        excess -= len(turn.events)
    return ()


def told(events: Sequence[Event]) -> list[Message]:
    """Tell of one turn, with calls and results in pairs."""
    outputs = {
        event.payload.call_id: event.payload
        for event in events
        if isinstance(event.payload, ToolCallFinished)
    }
    messages: list[Message] = []
    text, calls = "", list[PastCall]()

    def close_step() -> None:
        nonlocal text
        if text or calls:
            messages.append(AssistantStep(text, tuple(calls)))
            messages.extend(
                ToolOutput(call.call_id, call.tool, outputs[call.call_id].content) for call in calls
            )
        text = ""
        calls.clear()

    step = 0
    for event in events:
        match event.payload:
            case UserMessage(text=said):
                close_step()
                messages.append(UserText(said))
            case AssistantMessage(step=number, text=said):
                close_step()
                step, text = number, said
            case ToolCallProposed(call_id=call_id, step=number, tool=tool, arguments=arguments):
                if number != step:
                    close_step()
                    step = number
                if call_id in outputs:
                    calls.append(PastCall(call_id, tool, arguments))
            case _:
                pass
    close_step()
    return messages
