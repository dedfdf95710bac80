"""What is remembered of a conversation is what the rows say, or it is read again."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tests.storage.builders import message
from tyrum_gateway.app import past
from tyrum_gateway.app.past import Pasts
from tyrum_gateway.domain.checkpoint import Checkpoint
from tyrum_gateway.domain.commit import Accepted, Commit
from tyrum_gateway.domain.ids import ConversationId
from tyrum_gateway.domain.ports import Window
from tyrum_gateway.domain.prompt import WINDOW
from tyrum_gateway.domain.states import TurnState
from tyrum_gateway.domain.transcript import AssistantMessage, Event, Payload, TurnFinished, UserMessage
from tyrum_gateway.domain.turn import Turn
from tyrum_gateway.storage import SqliteStore

NOW = datetime(2026, 11, 30, tzinfo=UTC)


class Counting(SqliteStore):
    """A store that counts the windows that are read."""

    windows = 0

    async def window(self, turn: Turn, size: int) -> Window:
        """Read, and count."""
        self.windows += 1
        return await super().window(turn, size)


class Told:
    """A conversation whose every write is told to the memory, as the engine does."""

    def __init__(self, store: Counting) -> None:
        self.store = store
        self.pasts = Pasts(store)
        self.conversation: ConversationId | None = None

    async def accept(self, text: str) -> Turn:
        """Send a message."""
        accepted = await self.store.accept(message(text=text, conversation_id=self.conversation))
        self.conversation = accepted.conversation_id
        self.pasts.accepted(accepted.turn, _event(accepted, text))
        return accepted.turn

    async def move(self, turn: Turn, *payloads: Payload, checkpoint: Checkpoint | None = None) -> Turn:
        """Commit a transition and tell of it."""
        stored, events, *_ = await self.store.commit(
            Commit(turn, NOW, events=payloads, checkpoint=checkpoint)
        )
        self.pasts.committed(stored, events, checkpoint)
        return stored

    async def answer(self, turn: Turn) -> None:
        """Take a turn from its acceptance to its end, checking what is remembered at each step."""
        turn = await self.move(replace(turn, state=TurnState.RUNNING, step=1, attempt=1))
        await self.check(turn)
        turn = await self.move(turn, AssistantMessage(1, 1, f"answer {turn.number}"))
        await self.check(turn)
        ended = replace(turn, state=TurnState.COMPLETED)
        state = Checkpoint(turn.number, f"{turn.number} turns")
        await self.move(ended, TurnFinished(TurnState.COMPLETED), checkpoint=state)

    async def check(self, turn: Turn) -> None:
        """Compare what is remembered with what is stored."""
        assert await self.pasts.window(turn) == await SqliteStore.window(self.store, turn, WINDOW)


def _event(accepted: Accepted, text: str) -> Event:
    turn = accepted.turn
    payload = UserMessage(text, turn.principal_id)
    return Event(accepted.sequence, turn.conversation_id, turn.turn_id, turn.created_at, payload)


async def test_a_conversation_in_work_is_not_read_again(tmp_path: Path) -> None:
    """Turn after turn, queued or not, what is remembered equals the rows, and no window is read."""
    async with await Counting.open(tmp_path / "db") as store:
        assert isinstance(store, Counting)
        told = Told(store)
        await told.answer(await told.accept("first"))
        second, third = await told.accept("second"), await told.accept("third")
        await told.answer(second)
        await told.answer(third)
        assert store.windows == 0


async def test_a_long_past_is_cut_where_the_rows_are_cut(tmp_path: Path) -> None:
    """Beyond the window the oldest events are forgotten, and completeness with them."""
    async with await Counting.open(tmp_path / "db") as store:
        assert isinstance(store, Counting)
        told = Told(store)
        for number in range(WINDOW // 3 + 3):
            await told.answer(await told.accept(f"message {number}"))
        assert store.windows == 0


async def test_a_transition_that_nobody_told_of_is_noticed(tmp_path: Path) -> None:
    """A version that does not follow on makes the memory forget, and the rows are read."""
    async with await Counting.open(tmp_path / "db") as store:
        assert isinstance(store, Counting)
        told = Told(store)
        turn = await told.accept("first")
        untold = replace(turn, state=TurnState.RUNNING, step=1, attempt=1)
        untold, *_ = await store.commit(Commit(untold, NOW))
        turn = await told.move(untold, AssistantMessage(1, 1, "x"))
        await told.check(turn)
        assert store.windows == 1


async def test_a_message_that_nobody_told_of_is_read(tmp_path: Path) -> None:
    """The next turn's message is part of its window whoever accepted it."""
    async with await Counting.open(tmp_path / "db") as store:
        assert isinstance(store, Counting)
        told = Told(store)
        await told.answer(await told.accept("first"))
        accepted = await store.accept(message(text="second", conversation_id=told.conversation))
        await told.answer(accepted.turn)
        assert store.windows == 1


async def test_memory_is_bounded(tmp_path: Path) -> None:
    """Long conversations and many of them are read again instead of being kept."""
    async with await Counting.open(tmp_path / "db") as store:
        assert isinstance(store, Counting)
        told = Told(store)
        for _ in range(past.CONVERSATIONS + 5):
            told.conversation = None
            await told.accept("x")
        assert len(told.pasts._known) == past.CONVERSATIONS
        told.conversation = None
        turn = await told.move(await told.accept("y"), AssistantMessage(1, 1, "z" * (past.CHARACTERS + 1)))
        assert turn.conversation_id not in told.pasts._known
        await told.check(turn)


class Slow(Counting):
    """A store that does something else before it hands out the rows of a window."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def window(self, turn: Turn, size: int) -> Window:
        """Read, and let something happen."""
        window = await super().window(turn, size)
        if (happens := self.meanwhile) is not None:
            self.meanwhile = None
            await happens()
        return window


async def test_a_turn_that_ends_while_rows_are_read_is_not_forgotten(tmp_path: Path) -> None:
    """A queued turn is cancelled while the past is read: the next checkpoint rests on the newest one."""
    async with await Slow.open(tmp_path / "db") as store:
        assert isinstance(store, Slow)
        told = Told(store)
        turn, queued = await told.accept("first"), await told.accept("second")
        turn = await told.move(replace(turn, state=TurnState.RUNNING, step=1, attempt=1))
        told.pasts = Pasts(store)
        cancelled = replace(queued, state=TurnState.CANCELLED)
        store.meanwhile = lambda: told.move(cancelled, checkpoint=Checkpoint(2, "second, cancelled"))
        await told.pasts.window(turn)
        assert (await told.pasts.own(turn)).checkpoint == Checkpoint(2, "second, cancelled")
        await told.check(turn)
