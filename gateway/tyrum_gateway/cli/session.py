"""A chat client's turn: send, show, ask, survive a lost connection.

Invariants: a message is sent again only under its request id, so never twice; after `accepted` the stream is
resumed by sequence; leaving never cancels the turn.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from tyrum.chat.v1.chat_pb2 import QueuedBehind, SendMessageRequest, StreamItem, WatchRequest
from tyrum.chat.v1.event_pb2 import TURN_STATE_COMPLETED, TurnState
from tyrum_gateway.cli.asking import Desk
from tyrum_gateway.cli.connection import Gateway, Target, connect, flags
from tyrum_gateway.cli.failure import ExitCode, Failure, first_of
from tyrum_gateway.cli.output import Format, as_json, emit, enum_word, note
from tyrum_gateway.cli.projection import Answered, Asked, Notice, Output, Piece, Text, TurnView
from tyrum_gateway.cli.reconnect import resilient
from tyrum_gateway.cli.rejoining import Past, ended, past
from tyrum_gateway.cli.screen import Screen
from tyrum_gateway.cli.stream_items import items


class Session:
    """One conversation as one client has it."""

    def __init__(
        self, target: Callable[[], Target], conversation_id: str, output: Format, *, asking: bool
    ) -> None:
        self.target = target
        self.flags = ""
        self._others_flags = ""
        self.conversation_id = conversation_id
        self._output = output
        self._asking = asking
        self._screen = Screen()
        self._view = TurnView()
        self._ahead: TurnView | None = None
        """Of the turns before this one, while they are followed."""
        self._text: list[str] = []
        self._events: list[dict[str, Any]] = []

    async def send(self, text: str) -> ExitCode:
        """Send a message and stay until its turn rests.

        Raises:
            Failure: The gateway refused the message, or stays away for longer than a minute.
        """
        self._view, self._ahead = TurnView(), None
        request = SendMessageRequest(
            conversation_id=self.conversation_id, request_id=f"cli-{uuid.uuid4()}", text=text
        )
        await self._beside_desk(partial(self._follow, request))
        return self._end()

    async def rejoin(self) -> None:
        """Show how the conversation ended, and stay until nothing of it is unfinished.

        Raises:
            Failure: It is not there, or the caller may not read it.
        """
        async with connect(self._find()) as gateway:
            found = await past(gateway, self.conversation_id)
        if self._output is not Format.TEXT:
            return
        self._screen.show(found.pieces)
        self._screen.end_line()
        if found.unfinished and self._asking:
            await self._beside_desk(partial(self._finish, found))

    async def _beside_desk(self, follow: Callable[[Desk | None], Awaitable[None]]) -> None:
        """Follow turns; where a human can be asked, ask meanwhile."""
        try:
            if not self._asking:
                await follow(None)
                return
            desk = Desk(self.target, self._screen)
            async with asyncio.TaskGroup() as group:
                asker = group.create_task(desk.run())
                await follow(desk)
                asker.cancel()
        except ExceptionGroup as errors:
            raise first_of(errors) from errors
        finally:
            self._screen.end_line()

    async def _finish(self, found: Past, desk: Desk | None) -> None:
        self._ahead = found.view
        for approval_id in found.waiting:
            self._handle(Asked(approval_id), desk)
        unfinished = set(found.unfinished)
        self._show_waiting()
        async with aclosing(resilient(self._find, self._watch, tell=self._screen.tell)) as stream:
            async for item in stream:
                self._take(item, desk)
                if item.event.HasField("turn_finished"):
                    unfinished.discard(item.event.turn_id)
                if not unfinished:
                    break
        self._ahead = None

    async def _follow(self, request: SendMessageRequest, desk: Desk | None) -> None:
        self._show_waiting()
        try:
            stream = resilient(self._find, partial(self._stream, request), tell=self._screen.tell)
            async with aclosing(stream):
                async for item in stream:
                    self._take(item, desk)
                    if self._view.finished:
                        return
        except Failure as failure:
            if self._view.turn_id:
                failure.hint = self._resume_hint()
            raise

    def _find(self) -> Target:
        target = self.target()
        self.flags = flags(target)
        self._others_flags = flags(target, caller=False)
        return target

    async def _stream(self, request: SendMessageRequest, gateway: Gateway) -> AsyncIterator[StreamItem]:
        if not self._view.turn_id:
            call = gateway.chat.SendMessage(request, metadata=gateway.metadata)
            async for item in items(call):
                yield item
                if self._ahead is not None:
                    break
            else:
                return
            # What it waits behind is in the conversation's own stream.
            call.cancel()
            before = await past(gateway, self.conversation_id, until=self._view.sequence)
            self._ahead = before.view
        async for item in self._watch(gateway):
            yield item

    def _watch(self, gateway: Gateway) -> AsyncIterator[StreamItem]:
        view = self._view if self._view.turn_id else self._ahead
        after = view.sequence if view is not None else 0
        resume = WatchRequest(conversation_id=self.conversation_id, after_sequence=after)
        return items(gateway.chat.Watch(resume, metadata=gateway.metadata))

    def _take(self, item: StreamItem, desk: Desk | None) -> None:
        self._record(item)
        if item.HasField("accepted"):
            self.conversation_id = item.accepted.conversation_id
            self._view.turn_id = item.accepted.turn_id
            self._view.sequence = item.accepted.sequence
            if item.accepted.HasField("queued_behind"):
                self._queued(item.accepted.queued_behind, desk)
            self._show_waiting()
            return
        for piece in (pieces := self._pieces(item)):
            if isinstance(piece, Answered) and desk:
                desk.answered(piece.approval_id, piece.how)
        if self._output is Format.TEXT:
            self._screen.show(pieces)
        for piece in pieces:
            self._handle(piece, desk)
        if item.event.HasField("turn_finished"):
            self._screen.end_line()
        self._show_waiting()

    def _pieces(self, item: StreamItem) -> list[Piece]:
        """Fold an item into what is shown: of this turn, and of those before it when they are followed."""
        pieces = self._view.feed(item) if self._view.turn_id else []
        turn_id = item.event.turn_id or item.delta.turn_id or item.partial.turn_id
        if self._ahead is None or turn_id == self._view.turn_id:
            return pieces
        return [*self._ahead.feed(item), *ended(item.event)]

    def _queued(self, behind: QueuedBehind, desk: Desk | None) -> None:
        """Say behind what the message waits; where a human can be asked, ask what that waits for."""
        state = enum_word(TurnState, behind.state, "TURN_STATE_")
        does = "waits for an approval" if behind.approval_id else f"is {state}"
        note(f"queued behind {behind.turn_id} of this conversation, which {does}")
        if desk:
            self._ahead = TurnView(sequence=self._view.sequence)
        if behind.approval_id:
            self._handle(Asked(behind.approval_id), desk)
        else:
            note(f"hint: to end that turn: tyrum conversations cancel {behind.turn_id}{self.flags}")

    def _show_waiting(self) -> None:
        """Say on a terminal what takes its time."""
        if self._asking and not self._view.finished:
            running = [*self._view.running.values(), *(self._ahead.running.values() if self._ahead else ())]
            self._screen.waits_for(f"{running[0]} runs" if running else "waiting for the model")

    def _handle(self, piece: Piece, desk: Desk | None) -> None:
        match piece:
            case Asked(approval_id) if desk:
                desk.ask(approval_id)
            case Asked(approval_id):
                note(
                    f"waiting for approval {approval_id}; an approver answers it elsewhere:\n"
                    f"  tyrum approvals show {approval_id}{self._others_flags}\n"
                    f"  tyrum approvals approve {approval_id}{self._others_flags}\n"
                    f"  tyrum approvals deny {approval_id} --reason TEXT{self._others_flags}"
                )
            case Text() | Notice() | Output() | Answered():
                pass

    def _record(self, item: StreamItem) -> None:
        if self._output is Format.JSONL:
            emit(as_json(item), self._output)
        event = item.event
        seen = event.sequence <= self._view.sequence
        if self._output is Format.JSON and event.turn_id == self._view.turn_id and not seen:
            self._events.append(as_json(event))
            if event.HasField("assistant_message"):
                self._text.append(event.assistant_message.text)

    def _end(self) -> ExitCode:
        view = self._view
        self._screen.end_line()
        state = enum_word(TurnState, view.state, "TURN_STATE_")
        self._document()
        if view.state != TURN_STATE_COMPLETED:
            note(f"error: the turn {state}: {view.reason}" if view.reason else f"error: the turn {state}")
        if view.refused:
            return ExitCode.APPROVAL_REFUSED
        return ExitCode.OK if view.state == TURN_STATE_COMPLETED else ExitCode.FAILURE

    def _document(self) -> None:
        """Print the turn as one JSON document, as far as it was seen."""
        view = self._view
        if self._output is not Format.JSON:
            return
        emit(
            {
                "conversation_id": self.conversation_id,
                "turn_id": view.turn_id,
                "state": TurnState.Name(view.state) if view.state in TurnState.values() else str(view.state),
                "reason": view.reason,
                "text": "\n".join(text for text in self._text if text),
                "events": self._events,
            },
            self._output,
        )

    def tell_detached(self) -> None:
        """Say that the turn goes on, and how to come back to it."""
        self._screen.end_line()
        if not self._view.turn_id:
            note("interrupted before the gateway accepted the message")
            return
        self._document()
        note(f"detached; the turn goes on\nhint: {self._resume_hint()}")

    def _resume_hint(self) -> str:
        view = self._view
        return (
            f"follow: tyrum conversations watch {self.conversation_id} --after {view.sequence}{self.flags}\n"
            f"hint: cancel: tyrum conversations cancel {view.turn_id}{self.flags}"
        )
