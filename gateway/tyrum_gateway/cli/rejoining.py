"""Coming back to a conversation: what happened last, and what is not finished.

Invariant: nothing is answered or changed by it.
"""

from dataclasses import dataclass

from tyrum.chat.v1.chat_pb2 import GetConversationRequest, ListEventsRequest
from tyrum.chat.v1.event_pb2 import Event, TurnState
from tyrum_gateway.cli.connection import DEADLINE, Gateway
from tyrum_gateway.cli.output import enum_word, moment
from tyrum_gateway.cli.projection import Answered, Asked, Notice, Output, Piece, Text, TurnView
from tyrum_gateway.cli.terminal import shortened

_READ = 200
"""Events that are read: more than the turns that a conversation can have unfinished."""

_SHOWN = 12
"""Events that are shown."""

_MESSAGE = 300
"""Characters of a message that are shown."""


@dataclass(frozen=True, slots=True)
class Past:
    """The end of a conversation."""

    view: TurnView
    """Of all turns, as far as they were read."""
    pieces: list[Piece]
    """What is shown of them."""
    unfinished: set[str]
    """Turns."""
    waiting: list[str]
    """Approvals."""


async def past(gateway: Gateway, conversation_id: str, until: int = 0) -> Past:
    """Read the end of a conversation, or what was before an event of it.

    Raises:
        grpc.aio.AioRpcError: There is no such conversation, or the caller may not read it.
    """
    found = await gateway.chat.GetConversation(
        GetConversationRequest(conversation_id=conversation_id), metadata=gateway.metadata, timeout=DEADLINE
    )
    last = until or found.conversation.last_sequence
    request = ListEventsRequest(
        conversation_id=conversation_id, after_sequence=max(0, last - _READ), page_size=_READ
    )
    page = await gateway.chat.ListEvents(request, metadata=gateway.metadata, timeout=DEADLINE)
    return _folded(list(page.events))


def _folded(events: list[Event]) -> Past:
    view = TurnView()
    shown: list[Piece] = []
    unfinished: dict[str, None] = {}
    waiting: dict[str, None] = {}
    first = max(0, len(events) - _SHOWN)
    if first and events[first].sequence > 1:
        shown.append(Notice(f"[… {events[first].sequence - 1} earlier events]"))
    for number, event in enumerate(events):
        unfinished[event.turn_id] = None
        pieces = [*_message(event), *view.event(event), *ended(event)]
        if event.HasField("turn_finished"):
            unfinished.pop(event.turn_id)
        for piece in pieces:
            match piece:
                case Asked(approval_id):
                    waiting[approval_id] = None
                case Answered(approval_id):
                    waiting.pop(approval_id, None)
                case Text() | Notice() | Output():
                    pass
        if number >= first:
            shown += pieces
    return Past(view, shown, set(unfinished), list(waiting))


def ended(event: Event) -> list[Piece]:
    """Say of a turn that it rests, when it was not completed."""
    if not event.HasField("turn_finished"):
        return []
    word = enum_word(TurnState, event.turn_finished.state, "TURN_STATE_")
    return [] if word == "completed" else [Notice(f"[turn {word}] {event.turn_finished.reason}".rstrip())]


def _message(event: Event) -> list[Piece]:
    if not event.HasField("user_message"):
        return []
    text = shortened(event.user_message.text, _MESSAGE)
    return [Notice(f"#{event.sequence} {moment(event.created_at)}"), Notice(f"> {text}")]
