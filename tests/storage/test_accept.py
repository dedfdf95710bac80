"""Accepting messages: durable, idempotent, bounded."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.storage.builders import claim, finish, message, new
from tyrum_gateway.domain.errors import NotFound, NotOwner, QuotaExceeded, RequestIdReused
from tyrum_gateway.domain.ids import ConversationId, PrincipalId
from tyrum_gateway.domain.transcript import UserMessage
from tyrum_gateway.storage import SqliteStore


async def test_a_message_opens_a_turn(store: SqliteStore) -> None:
    """An accepted message is the conversation's next turn and its user message is recorded."""
    first = await store.accept(message(text="one"))
    second = await store.accept(message(text="two", conversation_id=first.conversation_id))
    assert (first.turn.number, first.sequence) == (1, 1)
    assert (second.turn.number, second.sequence) == (2, 2)
    events = await store.events(first.conversation_id, 0, 10)
    texts = [event.payload.text for event in events if isinstance(event.payload, UserMessage)]
    assert texts == ["one", "two"]
    assert await store.next_turn(first.conversation_id) == first.turn
    conversation = await store.conversation(first.conversation_id)
    assert (conversation.last_sequence, conversation.title) == (2, "a title")


async def test_the_same_request_is_accepted_once(database: Path) -> None:
    """Sending a request again, at once or after a restart, returns the first acceptance."""
    request = message(request_id="r")
    async with await SqliteStore.open(database) as store:
        answers = await asyncio.gather(*(store.accept(message(request_id="r")) for _ in range(16)))
        first = answers[0]
        assert set(answers) == {first}
        assert first.due
        assert store.statistics.commits == 1
    async with await SqliteStore.open(database) as store:
        assert await store.accept(request) == first
        assert len(await store.conversations(None, None, 10)) == 1
        moved, *_ = await store.commit(claim(first.turn))
        again = await store.accept(request)
        assert (again.turn, again.sequence) == (moved, first.sequence)


async def test_a_request_id_names_one_request(store: SqliteStore) -> None:
    """A request id used again for another text or conversation is refused; another principal may use it."""
    first = await store.accept(message(request_id="r", text="one"))
    with pytest.raises(RequestIdReused, match="`r`"):
        await store.accept(message(request_id="r", text="two"))
    with pytest.raises(RequestIdReused):
        await store.accept(message(request_id="r", text="one", conversation_id=first.conversation_id))
    other = await store.accept(message(request_id="r", text="two", principal_id=new(PrincipalId)))
    assert other.conversation_id != first.conversation_id


async def test_unfinished_turns_are_bounded(store: SqliteStore) -> None:
    """A conversation takes `max_queued` unfinished messages, and one more when one is finished."""
    first = await store.accept(message())
    inside = message(conversation_id=first.conversation_id, max_queued=2)
    await store.accept(inside)
    refused = message(conversation_id=first.conversation_id, max_queued=2, request_id="late")
    with pytest.raises(QuotaExceeded):
        await store.accept(refused)
    assert (await store.conversation(first.conversation_id)).last_sequence == 2
    turn, *_ = await store.commit(claim(first.turn))
    await store.commit(finish(turn))
    assert (await store.accept(refused)).turn.number == 3


async def test_unfinished_turns_of_a_principal_are_bounded_in_all_conversations(store: SqliteStore) -> None:
    """One principal cannot fill the gateway: its turns count wherever they are, until they end."""
    sent = message(max_unfinished=2)
    first = await store.accept(sent)
    await store.accept(message(max_unfinished=2))
    refused = message(max_unfinished=2, request_id="late")
    same = replace(message(conversation_id=first.conversation_id), max_unfinished=2)
    for one in (refused, same):
        with pytest.raises(QuotaExceeded, match=r"2 unfinished turns.*`limits.unfinished_turns_"):
            await store.accept(one)
    assert len(await store.conversations(None, None, 10)) == 2
    assert (await store.conversation(first.conversation_id)).last_sequence == 1
    await store.accept(message(max_unfinished=2, principal_id=new(PrincipalId)))
    assert await store.accept(sent) == first, "a repeat is no further turn"
    turn, *_ = await store.commit(claim(first.turn))
    await store.commit(finish(turn))
    assert (await store.accept(refused)).turn.number == 1


async def test_a_message_needs_its_conversation(store: SqliteStore) -> None:
    """A message to a conversation that does not exist is refused."""
    unknown = new(ConversationId)
    with pytest.raises(NotFound, match=unknown):
        await store.accept(message(conversation_id=unknown))


async def test_the_turn_version_guards_from_the_start(store: SqliteStore) -> None:
    """What `accept` returns and what is read are the same value, version included."""
    accepted = await store.accept(message())
    view = await store.turn(accepted.turn.turn_id)
    assert view.turn == accepted.turn
    assert view.ended_at is None
    assert replace(view.turn, version=0) != accepted.turn


async def test_anothers_conversation_does_not_exist(store: SqliteStore) -> None:
    """Another's conversation takes no message: it is refused, or does not exist for who may not see it."""
    first = await store.accept(message())
    stranger = message(conversation_id=first.conversation_id, principal_id=new(PrincipalId))
    with pytest.raises(NotFound, match=first.conversation_id):
        await store.accept(stranger)
    with pytest.raises(NotOwner, match="that opened a conversation"):
        await store.accept(replace(stranger, sees_all=True))
    own = message(conversation_id=first.conversation_id)
    assert (await store.accept(own)).sequence == 2
