"""Watching a conversation: durable events, each once and in order, with live text where it belongs.

Invariant: text of a step comes after every event of earlier steps, and before the event that replaces it.
Text is taken only together with the newest events, in one moment, so that it cannot overtake them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import nullcontext

from tyrum_gateway.app.streams import Attempt, Delta, Gap, LiveItem, Partial, Streams, Subscription
from tyrum_gateway.domain.errors import Draining
from tyrum_gateway.domain.ids import ConversationId, TurnId
from tyrum_gateway.domain.ports import Store
from tyrum_gateway.domain.transcript import AssistantMessage, AttemptAbandoned, Event, TurnFinished

PAGE = 200
"""Most events read at a time."""

FIRST_PAGE = 16
"""Events that are read first."""

HELD_CHARACTERS = 512 * 1024
"""Of the events it has read, a watcher holds about these; the rest is read again when it is due."""


async def watch(
    store: Store,
    streams: Streams,
    conversation_id: ConversationId,
    after: int,
    *,
    until: TurnId | None = None,
    joined: Subscription | None = None,
) -> AsyncGenerator[Sequence[Event | LiveItem], None]:
    """Yield durable events after a sequence, with live text in between: what is ready, each time.

    Args:
        store: Read until the watcher has caught up, and whenever it has fallen behind.
        streams: Wake the watcher, hold the newest events and the live text.
        conversation_id: Already checked to be visible.
        after: Last sequence seen.
        until: End after this turn has finished, and yield nothing of other turns; None watches for ever.
        joined: A subscription that its owner ends, begun before the event `after` was committed: what came
            later was handed to it, and the store need not be asked.

    Raises:
        Draining: The gateway is shutting down.
    """
    size, caught_up = FIRST_PAGE, joined is not None
    with nullcontext(joined) if joined else streams.subscribe(conversation_id) as subscription:
        while True:
            closed = subscription.closed  # asked first: what was published before it is still handed out
            if subscription.behind:
                subscription.behind = caught_up = False
            newest = streams.newest(conversation_id, after) if caught_up else None
            live = deque(subscription.take()) if newest is not None else deque[LiveItem]()
            events: Sequence[Event] = newest or ()
            if newest is None:
                found = await store.events(conversation_id, after, size)
                events = _held(found)
                whole = len(events) == len(found)
                caught_up = whole and len(found) < size
                size = min(2 * size, PAGE) if whole else len(events)
                del found  # a watcher that does not read holds no more than it has to
            after = events[-1].sequence if events else after
            ready = _woven(events, live, subscription)
            if until is not None:
                ready = _of(until, ready)
            if ready:
                yield ready
                if until is not None and _ends(ready[-1]):
                    return
            if newest is not None:
                if closed:
                    raise Draining("the gateway is shutting down: reconnect and resume")
                await subscription.wait()
                if until is None:
                    await asyncio.sleep(subscription.pause)


def _text_ended_by(event: Event) -> Attempt | None:
    """Tell up to which attempt the event replaces live text; None when it replaces none."""
    match event.payload:
        case AssistantMessage(step=step, attempt=attempt) | AttemptAbandoned(step=step, attempt=attempt):
            return Attempt(event.turn_id, step, attempt)
        case _:
            return None


def _belongs(item: LiveItem, end: Attempt) -> bool:
    """Tell whether live text is of this attempt or an earlier one; what a gap dropped was earlier."""
    return isinstance(item, Gap) or item.attempt.is_of(end)


def _woven(
    events: Sequence[Event], live: deque[LiveItem], subscription: Subscription
) -> list[Event | LiveItem]:
    """Put live text where it belongs between events; forget what they replace."""
    woven: list[Event | LiveItem] = []
    for event in events:
        end = _text_ended_by(event)
        if end is not None:
            while live and _belongs(live[0], end):
                woven.append(live.popleft())
            subscription.forget(end)
        woven.append(event)
    return [*woven, *live]


def _of(turn_id: TurnId, items: Sequence[Event | LiveItem]) -> list[Event | LiveItem]:
    """Leave out what is not of a turn, and what came after it has ended."""
    own: list[Event | LiveItem] = []
    for item in items:
        if isinstance(item, Gap) or _turn_of(item) == turn_id:
            own.append(item)
            if _ends(item):
                break
    return own


def _turn_of(item: Event | Delta | Partial) -> TurnId:
    return item.turn_id if isinstance(item, Event) else item.attempt.turn_id


def _ends(item: Event | LiveItem) -> bool:
    return isinstance(item, Event) and isinstance(item.payload, TurnFinished)


def _held(events: Sequence[Event]) -> Sequence[Event]:
    """Cut a page off after the event that makes it larger than `HELD_CHARACTERS`."""
    held = 0
    for number, event in enumerate(events, 1):
        held += event.characters
        if held > HELD_CHARACTERS:
            return events[:number]
    return events
