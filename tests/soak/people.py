"""Who uses a lane: senders that insist, watchers that reconnect, and two who answer the same questions.

All of them keep notes of what they were told; `verify` compares the notes with the database.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import grpc.aio

from tests.soak.plan import draw
from tests.support.client import Client, info_of
from tests.support.gateway import RunningGateway
from tyrum.approval.v1 import approval_pb2
from tyrum.chat.v1 import chat_pb2, event_pb2

CALL_SECONDS = 20.0
TURNS_PER_CONVERSATION = 6
_PAUSE = 0.02


@dataclass(slots=True)
class Notes:
    """What people were told, over all gateways of a lane."""

    accepted: dict[str, chat_pb2.Accepted] = field(default_factory=dict)
    """By request id."""
    seen: dict[str, list[event_pb2.Event]] = field(default_factory=lambda: defaultdict(list))
    """Durable events by conversation, in the order in which its watcher got them."""
    answered: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Outcomes that were reported for an approval, to anybody."""
    problems: list[str] = field(default_factory=list)


class Door:
    """The way to the present gateway; closed while there is none."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._client: Client | None = None

    @asynccontextmanager
    async def opened(self, gateway: RunningGateway) -> AsyncIterator[Client]:
        """Let people in while the gateway lives."""
        options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(gateway.address, options=options) as channel:
            self._client = Client(channel, gateway.metadata)
            self._open.set()
            try:
                yield self._client
            finally:
                self._open.clear()
                self._client = None

    async def client(self) -> Client:
        """Wait for a gateway."""
        while self._client is None:
            await self._open.wait()
        return self._client


class People:
    """Everybody who uses a lane."""

    def __init__(self, door: Door, name: str, chance: random.Random, conversations: int) -> None:
        self._door = door
        self._name = name
        self._chance = chance
        self._conversations = conversations
        self._sent = 0
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._asking = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._ended: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._busy = 0
        self.notes = Notes()

    async def live(self) -> None:
        """Use the lane until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for _ in range(self._conversations):
                group.create_task(self._converse())
            for _ in range(2):
                group.create_task(self._answer(random.Random(self._chance.random())))

    def go(self) -> None:
        """Send messages."""
        self._asking.set()

    async def rest(self, seconds: float) -> bool:
        """Send nothing more, and wait until everything that was sent has an end; tell whether it has."""
        self._asking.clear()
        try:
            async with asyncio.timeout(seconds):
                while self._busy or not self._caught_up():  # noqa: ASYNC110
                    await asyncio.sleep(_PAUSE)
        except TimeoutError:
            return False
        return True

    def unfinished(self) -> Iterator[str]:
        """Name accepted turns whose end nobody has seen."""
        for request, accepted in self.notes.accepted.items():
            if not self._ended[accepted.turn_id].is_set():
                yield f"{request} ({accepted.turn_id})"

    def _caught_up(self) -> bool:
        return next(self.unfinished(), None) is None

    async def _converse(self) -> None:
        while True:
            conversation = ""
            for _ in range(TURNS_PER_CONVERSATION):
                await self._asking.wait()
                self._busy += 1
                conversation = await self._exchange(conversation)
                self._busy -= 1
                await asyncio.sleep(self._chance.random() * 0.1)
            # All its turns have ended, and their last event was seen.
            self._watching.pop(conversation).cancel()

    async def _exchange(self, conversation: str) -> str:
        """Send one message or two that queue, and wait for the ends of their turns."""
        turns = []
        for _ in range(self._chance.choice((1, 1, 2, 3))):
            accepted = await self._send(conversation)
            conversation = accepted.conversation_id
            turns.append(accepted.turn_id)
            if conversation not in self._watching and self._group is not None:
                self._watching[conversation] = self._group.create_task(self._watch(conversation))
        if self._chance.random() < 0.05:
            await self._cancel(self._chance.choice(turns))
        for turn in turns:
            await self._ended[turn].wait()
        return conversation

    async def _send(self, conversation: str) -> chat_pb2.Accepted:
        """Send a message, again under the same request id until it is accepted."""
        self._sent += 1
        plan = draw(f"{self._name}-{self._sent}", self._chance)
        while True:
            client = await self._door.client()
            stream = client.send(plan.text(), conversation, plan.name)
            async with self._tolerated("SendMessage"), aclosing(stream):
                accepted = (await anext(stream)).accepted
                self.notes.accepted[plan.name] = accepted
                return accepted

    async def _watch(self, conversation: str) -> None:
        """Follow a conversation until cancelled; reconnect after the last event that was seen."""
        seen = self.notes.seen[conversation]
        while True:
            client = await self._door.client()
            request = chat_pb2.WatchRequest(
                conversation_id=conversation,
                after_sequence=seen[-1].sequence if seen else 0,
                durable_only=True,
            )
            async with self._tolerated("Watch"):
                async for response in client.chat.Watch(request, metadata=client.metadata):
                    for item in response.items:
                        seen.append(item.event)
                        if item.event.HasField("turn_finished"):
                            self._ended[item.event.turn_id].set()

    async def _answer(self, chance: random.Random) -> None:
        """Answer questions as somebody else does, each time with a mind of one's own."""
        while True:
            client = await self._door.client()
            async with self._tolerated("ListApprovals"):
                listed = await client.approvals.ListApprovals(
                    approval_pb2.ListApprovalsRequest(), metadata=client.metadata, timeout=CALL_SECONDS
                )
                for approval in listed.approvals:
                    if chance.random() < 0.6:
                        await self._resolve(client, approval, approve=chance.random() < 0.75)
            await asyncio.sleep(0.02 + chance.random() * 0.08)

    async def _resolve(self, client: Client, approval: approval_pb2.Approval, *, approve: bool) -> None:
        request = approval_pb2.ResolveApprovalRequest(
            approval_id=approval.approval_id,
            answer=approval_pb2.ANSWER_APPROVE if approve else approval_pb2.ANSWER_DENY,
            digest=approval.digest,
        )
        async with self._tolerated("ResolveApproval"):
            try:
                answer = await client.approvals.ResolveApproval(
                    request, metadata=client.metadata, timeout=CALL_SECONDS
                )
            except grpc.aio.AioRpcError as error:
                late = error.code() is grpc.StatusCode.FAILED_PRECONDITION
                if late and info_of(error).reason == "ALREADY_RESOLVED":
                    return
                raise
            self.notes.answered[approval.approval_id].add(int(answer.approval.outcome))

    async def _cancel(self, turn: str) -> None:
        client = await self._door.client()
        async with self._tolerated("CancelTurn"):
            await client.chat.CancelTurn(
                chat_pb2.CancelTurnRequest(turn_id=turn), metadata=client.metadata, timeout=CALL_SECONDS
            )

    @asynccontextmanager
    async def _tolerated(self, what: str) -> AsyncIterator[None]:
        """A gateway that dies is no reason to complain; everything else is."""
        task = asyncio.current_task()
        assert task is not None
        try:
            yield
        except grpc.aio.AioRpcError as error:
            if error.code() not in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}:
                self.notes.problems.append(f"{what}: {error.code().name}: {error.details()}")
            await asyncio.sleep(_PAUSE)
        except grpc.aio.UsageError:
            await asyncio.sleep(_PAUSE)  # the channel was closed before the call
        except asyncio.CancelledError:
            if task.cancelling():
                raise
            await asyncio.sleep(_PAUSE)  # the channel was closed under the call
