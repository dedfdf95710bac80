"""ChatService over the chat desk: parse, call, convert; nothing is decided here."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from tyrum.chat.v1 import chat_pb2, chat_pb2_grpc
from tyrum_gateway.app.chat import ChatDesk
from tyrum_gateway.domain.ids import ConversationId, TurnId
from tyrum_gateway.domain.transcript import Event
from tyrum_gateway.rpc import convert, convert_event
from tyrum_gateway.rpc.guard import caller
from tyrum_gateway.rpc.paging import enough


class ChatServicer(chat_pb2_grpc.ChatServiceServicer):
    """What chat clients use."""

    def __init__(self, desk: ChatDesk) -> None:
        self._desk = desk

    async def SendMessage(  # noqa: N802 - named by the contract
        self, request: chat_pb2.SendMessageRequest, context: Any
    ) -> AsyncGenerator[chat_pb2.SendMessageResponse, None]:
        """Accept a message, then stream its turn until it rests."""
        given = request.conversation_id
        stream = self._desk.converse(
            caller(),
            ConversationId.parse(given, "conversation_id") if given else None,
            convert.request_id(request.request_id),
            convert.message_text(request.text),
        )
        async with aclosing(stream):
            async for items in stream:
                for response in convert_event.responses(chat_pb2.SendMessageResponse, items):
                    yield response

    async def Watch(  # noqa: N802 - named by the contract
        self, request: chat_pb2.WatchRequest, context: Any
    ) -> AsyncGenerator[chat_pb2.WatchResponse, None]:
        """Stream a conversation from a sequence on."""
        conversation_id = ConversationId.parse(request.conversation_id, "conversation_id")
        after = convert.sequence(request.after_sequence)
        await self._desk.conversation(caller(), conversation_id)
        async for items in self._desk.watch(conversation_id, after):
            wanted = [item for item in items if isinstance(item, Event)] if request.durable_only else items
            for response in convert_event.responses(chat_pb2.WatchResponse, wanted):
                yield response

    async def CancelTurn(  # noqa: N802 - named by the contract
        self, request: chat_pb2.CancelTurnRequest, context: Any
    ) -> chat_pb2.CancelTurnResponse:
        """Settle a turn as cancelled."""
        turn_id = TurnId.parse(request.turn_id, "turn_id")
        view = await self._desk.cancel(caller(), turn_id, convert.reason(request.reason))
        return chat_pb2.CancelTurnResponse(turn=convert.turn(view))

    async def GetTurn(  # noqa: N802 - named by the contract
        self, request: chat_pb2.GetTurnRequest, context: Any
    ) -> chat_pb2.GetTurnResponse:
        """Return a turn."""
        view = await self._desk.turn(caller(), TurnId.parse(request.turn_id, "turn_id"))
        return chat_pb2.GetTurnResponse(turn=convert.turn(view))

    async def GetConversation(  # noqa: N802 - named by the contract
        self, request: chat_pb2.GetConversationRequest, context: Any
    ) -> chat_pb2.GetConversationResponse:
        """Return a conversation."""
        conversation_id = ConversationId.parse(request.conversation_id, "conversation_id")
        found = await self._desk.conversation(caller(), conversation_id)
        return chat_pb2.GetConversationResponse(conversation=convert.conversation(found))

    async def ListConversations(  # noqa: N802 - named by the contract
        self, request: chat_pb2.ListConversationsRequest, context: Any
    ) -> chat_pb2.ListConversationsResponse:
        """Page through conversations; the token is the last id of the page before."""
        size = convert.page_size(request.page_size, default=50, maximum=200)
        token = request.page_token
        before = ConversationId.parse(token, "page_token") if token else None
        found = await self._desk.conversations(caller(), before, size + 1)
        return chat_pb2.ListConversationsResponse(
            conversations=[convert.conversation(item) for item in found[:size]],
            next_page_token=found[size - 1].conversation_id if len(found) > size else "",
        )

    async def ListEvents(  # noqa: N802 - named by the contract
        self, request: chat_pb2.ListEventsRequest, context: Any
    ) -> chat_pb2.ListEventsResponse:
        """Page through the transcript."""
        conversation_id = ConversationId.parse(request.conversation_id, "conversation_id")
        size = convert.page_size(request.page_size, default=100, maximum=500)
        after = convert.sequence(request.after_sequence)

        async def read(last: Event | None, limit: int) -> Sequence[Event]:
            return await self._desk.events(caller(), conversation_id, last.sequence if last else after, limit)

        found = await enough(read, lambda event: event.characters, size + 1)
        events, more = convert.page(found, size, convert_event.event)
        return chat_pb2.ListEventsResponse(events=events, more=more)
