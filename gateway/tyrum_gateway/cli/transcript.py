"""Reading conversations over gRPC. Invariant: a transcript is read to its end, page by page."""

from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing

from tyrum.chat.v1.chat_pb2 import (
    CancelTurnRequest,
    Conversation,
    GetConversationRequest,
    ListConversationsRequest,
    ListEventsRequest,
    StreamItem,
    WatchRequest,
)
from tyrum.chat.v1.event_pb2 import Event, TurnState
from tyrum_gateway.cli.connection import DEADLINE, Gateway, Target, connect, find
from tyrum_gateway.cli.output import (
    Format,
    as_json,
    emit,
    emit_all,
    enum_word,
    fields,
    moment,
    more,
    named,
    note,
    say,
)
from tyrum_gateway.cli.projection import TurnView
from tyrum_gateway.cli.reconnect import resilient
from tyrum_gateway.cli.screen import Screen
from tyrum_gateway.cli.stream_items import items
from tyrum_gateway.cli.tables import Column, table, when
from tyrum_gateway.cli.terminal import drawn, shortened

__all__ = ["cancel", "events", "find", "list_conversations", "show", "watch"]

_PAGE = 200
_COLUMNS = (
    Column("CONVERSATION"),
    Column("LAST EVENT"),
    Column("WHO", leaves=2),
    Column("EVENTS", leaves=1),
    Column("TITLE", least=24),
)
_EVENT_PAGE = 500


async def list_conversations(target: Target, limit: int, output: Format, *, wide: bool) -> None:
    """Print at most `limit` conversations, newest first."""
    found: list[Conversation] = []
    token = ""
    async with connect(target) as gateway:
        while len(found) < limit:
            page = await gateway.chat.ListConversations(
                ListConversationsRequest(page_size=min(_PAGE, limit - len(found)), page_token=token),
                metadata=gateway.metadata,
                timeout=DEADLINE,
            )
            found += page.conversations
            token = page.next_page_token
            if not token:
                break
    if output is not Format.TEXT:
        emit_all(found, output)
    elif not found:
        note("there are no conversations that you may see")
    else:
        rows = [
            (
                item.conversation_id,
                when(item.updated_at),
                item.principal or item.principal_id,
                str(item.last_sequence),
                shortened(item.title, 60),
            )
            for item in found
        ]
        table(_COLUMNS, rows, wide=wide)
    if token:
        note(more("older conversations", limit))


async def events(gateway: Gateway, conversation_id: str, after: int = 0) -> AsyncIterator[Event]:
    """Yield the events of a conversation after a sequence number, through all pages."""
    more = True
    while more:
        page = await gateway.chat.ListEvents(
            ListEventsRequest(conversation_id=conversation_id, after_sequence=after, page_size=_EVENT_PAGE),
            metadata=gateway.metadata,
            timeout=DEADLINE,
        )
        for event in page.events:
            yield event
            after = event.sequence
        more = page.more and bool(page.events)


async def show(target: Target, conversation_id: str, output: Format, *, full: bool) -> None:
    """Print a conversation with its whole transcript; with `full` all that commands printed, too."""
    async with connect(target) as gateway:
        response = await gateway.chat.GetConversation(
            GetConversationRequest(conversation_id=conversation_id),
            metadata=gateway.metadata,
            timeout=DEADLINE,
        )
        head = response.conversation
        if output is Format.JSON:
            found = [as_json(event) async for event in events(gateway, conversation_id)]
            emit({"conversation": as_json(head), "events": found}, output)
        elif output is Format.JSONL:
            async for event in events(gateway, conversation_id):
                emit(as_json(event), output)
        else:
            fields(
                [
                    ("conversation", head.conversation_id),
                    ("opened", f"{moment(head.created_at)} by {named(head.principal, head.principal_id)}"),
                    ("events", str(head.last_sequence)),
                ]
            )
            reader = _Reader(full=full)
            async for event in events(gateway, conversation_id):
                reader.read(event)


class _Reader:
    """Prints a conversation for people."""

    def __init__(self, after: int = 0, *, full: bool = False) -> None:
        self._view = TurnView(sequence=after)
        self._screen = Screen(full=full)

    def item(self, item: StreamItem) -> None:
        if item.HasField("event"):
            self.read(item.event)
        else:
            self._screen.show(self._view.feed(item))

    def read(self, event: Event) -> None:
        if event.sequence <= self._view.sequence:
            return
        if event.HasField("user_message"):
            self._screen.end_line()
            self._screen.notice(f"#{event.sequence} {moment(event.created_at)} {event.turn_id}")
            say("\n".join(drawn(event.user_message.text)))
        self._screen.show(self._view.event(event))
        if event.HasField("turn_finished"):
            finished = event.turn_finished
            state = enum_word(TurnState, finished.state, "TURN_STATE_")
            self._screen.notice(f"[turn {state}] {finished.reason}".rstrip())


async def watch(target: Callable[[], Target], conversation_id: str, after: int, output: Format) -> None:
    """Follow a conversation until the user ends it or the gateway stays away."""
    reader = _Reader(after)
    sequence = after

    def stream(gateway: Gateway) -> AsyncIterable[StreamItem]:
        request = WatchRequest(conversation_id=conversation_id, after_sequence=sequence)
        return items(gateway.chat.Watch(request, metadata=gateway.metadata))

    async with aclosing(resilient(target, stream)) as watched:
        async for item in watched:
            sequence = item.event.sequence or sequence
            if output is Format.TEXT:
                reader.item(item)
            else:
                emit(as_json(item), Format.JSONL)


async def cancel(target: Target, turn_id: str, reason: str, output: Format) -> None:
    """Cancel a turn and print the state in which it rests."""
    async with connect(target) as gateway:
        response = await gateway.chat.CancelTurn(
            CancelTurnRequest(turn_id=turn_id, reason=reason), metadata=gateway.metadata, timeout=DEADLINE
        )
    if output is not Format.TEXT:
        emit(as_json(response.turn), output)
        return
    state = enum_word(TurnState, response.turn.state, "TURN_STATE_")
    say(f"{response.turn.turn_id} {state}")
