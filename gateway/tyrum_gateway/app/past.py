"""What is remembered of conversations in work, so that a turn reads its past once or not at all.

Invariant: what is remembered is what the rows say. Every transition passes through here with the version it
made; whoever asks names the version they know, and anything that does not follow on is forgotten and read
again. Nothing here survives the gateway, and nothing is lost with it.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tyrum_gateway.domain.checkpoint import Checkpoint
from tyrum_gateway.domain.ids import ConversationId, TurnId
from tyrum_gateway.domain.past_turn import newest, past_turn
from tyrum_gateway.domain.ports import Store, Window
from tyrum_gateway.domain.prompt import WINDOW
from tyrum_gateway.domain.transcript import Event
from tyrum_gateway.domain.turn import Turn

CONVERSATIONS: Final = 64
"""Conversations that are remembered at once; the one that was used longest ago is forgotten first."""

CHARACTERS: Final = 256 * 1024
"""Length of what is remembered of one conversation at most."""

_MESSAGES: Final = 256
_MESSAGE_CHARACTERS: Final = 16 * 1024
_NEW: Final = Window(Checkpoint(), (), complete=True, own=())
_ACCEPTED: Final = 1
"""Version of a turn whose message was accepted and that nobody has taken up."""


@dataclass(frozen=True, slots=True)
class _Known:
    number: int
    """Of the turn that the window is for."""
    version: int
    """Of that turn; 0 while its message is not known."""
    window: Window
    characters: int


class Pasts:
    """The windows of turns in work."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[ConversationId, _Known] = OrderedDict()
        self._messages: OrderedDict[TurnId, Event] = OrderedDict()
        self._reading: dict[ConversationId, object] = {}

    async def window(self, turn: Turn) -> Window:
        """Return what the turn's next prompt is built from."""
        known = self._of(turn)
        if known is not None:
            return known.window
        reading = self._reading[turn.conversation_id] = object()
        window = await self._store.window(turn, WINDOW)
        # A queued turn that was cancelled meanwhile has changed the checkpoint: then it may be an old one.
        if self._reading.get(turn.conversation_id) is reading:
            del self._reading[turn.conversation_id]
            characters = sum(past.characters for past in window.earlier) + _characters(window.own)
            self._remember(turn.conversation_id, _Known(turn.number, turn.version, window, characters))
        return window

    async def own(self, turn: Turn) -> Window:
        """Return what the turn's checkpoint is built from: `earlier` may be empty."""
        known = self._of(turn)
        return await self._store.window(turn, 0) if known is None else known.window

    def accepted(self, turn: Turn, message: Event) -> None:
        """Note a message that was made durable."""
        if message.characters > _MESSAGE_CHARACTERS:
            return
        known = self._known.get(turn.conversation_id)
        if known is None and turn.number == 1:
            self._remember(turn.conversation_id, _begun(_Known(1, 0, _NEW, 0), message))
        elif known is not None and (known.number, known.version) == (turn.number, 0):
            self._remember(turn.conversation_id, _begun(known, message))
        else:
            self._messages[turn.turn_id] = message
            while len(self._messages) > _MESSAGES:
                self._messages.popitem(last=False)

    def committed(self, turn: Turn, events: Sequence[Event], checkpoint: Checkpoint | None) -> None:
        """Note a transition.

        Args:
            turn: As stored, with its new version.
            events: What was appended.
            checkpoint: The new conversation state of a turn that came to rest for ever.
        """
        self._reading.pop(turn.conversation_id, None)
        known = self._known.get(turn.conversation_id)
        message = self._messages.pop(turn.turn_id, None)
        if known is not None and message is not None and (known.number, known.version) == (turn.number, 0):
            known = _begun(known, message)
        if known is None or (known.number, known.version + 1) != (turn.number, turn.version):
            self._known.pop(turn.conversation_id, None)
            return
        window = replace(known.window, own=(*known.window.own, *events))
        if checkpoint is None:
            characters = known.characters + _characters(events)
            self._remember(turn.conversation_id, _Known(turn.number, turn.version, window, characters))
            return
        told = (*window.earlier, past_turn(window.own))
        complete = window.complete and sum(len(past.events) for past in told) <= WINDOW
        rested = Window(checkpoint, newest(told, WINDOW), complete, ())
        characters = sum(past.characters for past in rested.earlier)
        self._remember(turn.conversation_id, _Known(turn.number + 1, 0, rested, characters))

    def forget(self, conversation_id: ConversationId) -> None:
        """Read anew: something was committed that did not pass through here."""
        self._reading.pop(conversation_id, None)
        self._known.pop(conversation_id, None)

    def _of(self, turn: Turn) -> _Known | None:
        known = self._known.get(turn.conversation_id)
        fits = known is not None and (known.number, known.version) == (turn.number, turn.version)
        return known if fits else None

    def _remember(self, conversation_id: ConversationId, known: _Known) -> None:
        if known.characters > CHARACTERS:
            self._known.pop(conversation_id, None)
            return
        self._known[conversation_id] = known
        self._known.move_to_end(conversation_id)
        while len(self._known) > CONVERSATIONS:
            self._known.popitem(last=False)


def _begun(known: _Known, message: Event) -> _Known:
    window = replace(known.window, own=(message,))
    return _Known(known.number, _ACCEPTED, window, known.characters + message.characters)


def _characters(events: Sequence[Event]) -> int:
    return sum(event.characters for event in events)
