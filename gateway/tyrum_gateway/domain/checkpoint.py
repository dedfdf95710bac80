"""Conversation state: a bounded, extractive summary of what lies behind the prompt's window.

Invariant: it is derived from the transcript alone, grows by one turn at every settle, and stays below
`MAX_CHARACTERS`. It is not the transcript: deleting it loses nothing but continuity.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tyrum_gateway.domain.transcript import AssistantMessage, Payload, ToolCallProposed, UserMessage

MAX_CHARACTERS = 6_000
"""Upper bound of the summary."""

_EXCERPT = 240


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is known of a conversation up to a sequence."""

    through_turn: int = 0
    """Number of the last turn that is taken into account."""
    summary: str = ""
    """One paragraph per turn, oldest first; the oldest are dropped first."""


def extend(checkpoint: Checkpoint, number: int, payloads: Iterable[Payload]) -> Checkpoint:
    """Fold one turn into the conversation state.

    Args:
        checkpoint: The state so far.
        number: Number of the turn.
        payloads: All that was recorded for the turn, in order.
    """
    lines = [line for payload in payloads if (line := _line(payload))]
    paragraph = f"Turn {number}\n" + "\n".join(lines)
    paragraphs = [part for part in checkpoint.summary.split("\n\n") if part]
    paragraphs.append(paragraph[:MAX_CHARACTERS])
    while len("\n\n".join(paragraphs)) > MAX_CHARACTERS:
        paragraphs.pop(0)
    return Checkpoint(number, "\n\n".join(paragraphs))


def _line(payload: Payload) -> str:
    match payload:
        case UserMessage(text=text):
            return f"user: {_excerpt(text)}"
        case AssistantMessage(text=text) if text:
            return f"assistant: {_excerpt(text)}"
        case ToolCallProposed(tool=tool, arguments=arguments):
            return f"called {tool}: {_excerpt(arguments)}"
        case _:
            return ""


def _excerpt(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _EXCERPT else flat[:_EXCERPT] + " …"
