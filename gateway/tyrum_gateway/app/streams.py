"""Live streams: what a conversation committed last, and the text that is being generated.

Durable events are never queued for a watcher: it is woken and pulls them, from the shared tail of the newest
ones or, when it is further behind, from the store. Deltas are not durable; each watcher holds at most
`RING_BYTES` of them, and what a slow one misses becomes one gap.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tyrum_gateway.domain.ids import ConversationId, TurnId
from tyrum_gateway.domain.transcript import Event

RING_BYTES = 256 * 1024
"""Most delta text held for one watcher, and most text of a partial snapshot, in UTF-8 bytes."""

MERGED_BYTES = 4 * 1024
"""Deltas that nobody has taken yet are joined up to this size, so that small ones cost little more."""


MOMENT = 0.02
"""Seconds after which watchers of a turn that goes on are woken; further commits do not add to it."""

PAUSE_SECONDS = 0.02
SPREAD_SECONDS = 0.002
SPREAD_OVER = 16
"""Who only follows a conversation pulls after a pause, one after the other, so that many do not get in the
way of the turn that they follow."""

TAIL_EVENTS = 64
TAIL_CHARACTERS = 512 * 1024
"""Bounds of the newest events that are held for all watchers of a conversation together."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Which attempt text belongs to."""

    turn_id: TurnId
    step: int
    attempt: int

    def is_of(self, end: "Attempt") -> bool:
        """Tell whether this is `end` or an earlier attempt of its turn."""
        return self.turn_id == end.turn_id and (self.step, self.attempt) <= (end.step, end.attempt)


@dataclass(frozen=True, slots=True)
class Delta:
    """New text of an attempt."""

    attempt: Attempt
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Partial:
    """Text of an attempt before the watcher joined."""

    attempt: Attempt
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Delta text that was dropped."""

    dropped_bytes: int


LiveItem = Delta | Partial | Gap
"""What a watcher gets between durable events."""


class Subscription:
    """One watcher's view: a wake-up flag and a bounded ring of deltas."""

    def __init__(self, partial: Partial | None, pause: float = 0) -> None:
        self._wake = asyncio.Event()
        self._ring: deque[Delta | Partial] = deque()
        self._held = 0
        self._dropped = 0
        self.closed = False
        self.behind = False
        """Whether there are events that nobody announced: the store has them."""
        self.pause = pause
        """Seconds that a watcher who only follows waits for more before it pulls."""
        if partial is not None:
            self._push(partial)

    async def wait(self) -> None:
        """Return when something may be new since the last `take`."""
        await self._wake.wait()

    def take(self) -> list[LiveItem]:
        """Empty the ring and rearm the wake-up."""
        self._wake.clear()
        items: list[LiveItem] = [Gap(self._dropped)] if self._dropped else []
        items += self._ring
        self._ring.clear()
        self._held = self._dropped = 0
        return items

    def forget(self, end: Attempt) -> None:
        """Drop text that a durable event has replaced: all of the turn up to the attempt."""
        kept = [item for item in self._ring if not item.attempt.is_of(end)]
        self._ring = deque(kept)
        self._held = sum(len(item.text.encode()) for item in kept)

    def wake(self) -> None:
        """Note that there are new events."""
        self._wake.set()

    def offer(self, delta: Delta) -> None:
        """Add a delta, dropping the oldest ones that no longer fit."""
        self._push(delta)
        self._wake.set()

    def _push(self, item: Delta | Partial) -> None:
        self._held += len(item.text.encode())
        last = self._ring[-1] if self._ring else None
        if (
            isinstance(last, Delta)
            and isinstance(item, Delta)
            and last.attempt == item.attempt
            and len(last.text) + len(item.text) <= MERGED_BYTES
        ):
            self._ring[-1] = Delta(last.attempt, last.offset, last.text + item.text)
        else:
            self._ring.append(item)
        while self._held > RING_BYTES:
            size = len(self._ring.popleft().text.encode())
            self._held -= size
            self._dropped += size


class _Tail:
    """The newest events of a watched conversation, without a hole."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._held = 0
        self._last = 0

    def add(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.sequence <= self._last:
                continue
            if event.sequence != self._last + 1:
                self._events.clear()
                self._held = 0
            self._events.append(event)
            self._held += event.characters
            self._last = event.sequence
        while self._events and (len(self._events) > TAIL_EVENTS or self._held > TAIL_CHARACTERS):
            self._held -= self._events.popleft().characters

    def after(self, sequence: int) -> list[Event] | None:
        if sequence >= self._last:
            return []
        if not self._events or self._events[0].sequence > sequence + 1:
            return None
        return [event for event in self._events if event.sequence > sequence]


class _Generating:
    """Text of the running attempt, bounded, for watchers that join late."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.end = 0
        self._chunks: deque[str] = deque()
        self._held = 0

    def append(self, text: str) -> None:
        size = len(text.encode())
        self._chunks.append(text)
        self._held += size
        self.end += size
        while self._held > RING_BYTES and len(self._chunks) > 1:
            self._held -= len(self._chunks.popleft().encode())

    def partial(self) -> Partial:
        return Partial(self.attempt, self.end - self._held, "".join(self._chunks))


class Streams:
    """All watchers, by conversation."""

    def __init__(self) -> None:
        self._watchers: dict[ConversationId, set[Subscription]] = {}
        self._generating: dict[ConversationId, _Generating] = {}
        self._tails: dict[ConversationId, _Tail] = {}
        self._signals: dict[ConversationId, asyncio.TimerHandle] = {}

    @contextmanager
    def subscribe(self, conversation_id: ConversationId) -> Iterator[Subscription]:
        """Watch a conversation until the context ends."""
        generating = self._generating.get(conversation_id)
        watchers = self._watchers.setdefault(conversation_id, set())
        pause = PAUSE_SECONDS + SPREAD_SECONDS * (len(watchers) % SPREAD_OVER)
        subscription = Subscription(generating.partial() if generating else None, pause)
        watchers.add(subscription)
        try:
            yield subscription
        finally:
            watchers.discard(subscription)
            if not watchers:
                self._watchers.pop(conversation_id, None)
                self._tails.pop(conversation_id, None)

    def close(self) -> None:
        """End all watchers: the gateway stops."""
        for subscriptions in self._watchers.values():
            for subscription in subscriptions:
                subscription.closed = True
                subscription.wake()

    def committed(self, conversation_id: ConversationId, events: Sequence[Event], *, resting: bool) -> None:
        """Let the watchers have the events of a commit, without a look into the store.

        Args:
            conversation_id: Where they were committed.
            events: In order.
            resting: Whether the turn needs nothing more now: then watchers are woken at once.
        """
        if conversation_id not in self._watchers:
            return
        self._tails.setdefault(conversation_id, _Tail()).add(events)
        if resting:
            self._wake(conversation_id)
        elif conversation_id not in self._signals:
            loop = asyncio.get_running_loop()
            self._signals[conversation_id] = loop.call_later(MOMENT, self._wake, conversation_id)

    def unannounced(self, conversation_id: ConversationId) -> None:
        """Have the watchers read the store: something was committed that nobody handed over."""
        for subscription in self._watchers.get(conversation_id, ()):
            subscription.behind = True
            subscription.wake()

    def _wake(self, conversation_id: ConversationId) -> None:
        signal = self._signals.pop(conversation_id, None)
        if signal is not None:
            signal.cancel()
        for subscription in self._watchers.get(conversation_id, ()):
            subscription.wake()

    def newest(self, conversation_id: ConversationId, after: int) -> list[Event] | None:
        """Return all events after a sequence; None when they reach further back than what is held.

        Only for a watcher that has read the store to its end since it subscribed, and was woken after that.
        """
        tail = self._tails.get(conversation_id)
        return [] if tail is None else tail.after(after)

    def delta(self, conversation_id: ConversationId, attempt: Attempt, text: str) -> None:
        """Publish new text of an attempt."""
        generating = self._generating.get(conversation_id)
        if generating is None or generating.attempt != attempt:
            generating = self._generating[conversation_id] = _Generating(attempt)
        delta = Delta(attempt, generating.end, text)
        generating.append(text)
        for subscription in self._watchers.get(conversation_id, ()):
            subscription.offer(delta)

    def attempt_over(self, conversation_id: ConversationId) -> None:
        """Forget the text of an attempt that has ended one way or the other."""
        self._generating.pop(conversation_id, None)
