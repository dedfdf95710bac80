"""A chat client that measures turns."""

import re
import time
import uuid
from collections.abc import AsyncIterator

import grpc
import grpc.aio

from tyrum.approval.v1 import approval_pb2
from tyrum.approval.v1.approval_pb2_grpc import ApprovalServiceStub
from tyrum.chat.v1 import chat_pb2, event_pb2
from tyrum.chat.v1.chat_pb2_grpc import ChatServiceStub


class BenchClient:
    """One connection to a gateway."""

    def __init__(self, address: str, token: str) -> None:
        self.channel = grpc.aio.insecure_channel(address, options=[("grpc.default_authority", "localhost")])
        self._chat = ChatServiceStub(self.channel)
        self._approvals = ApprovalServiceStub(self.channel)
        self._metadata = (("authorization", f"Bearer {token}"),)

    async def approved_turn(self, text: str, conversation: str = "") -> tuple[float, str]:
        """Have a turn ask to run `date +%s%N`, and approve it.

        Returns:
            Milliseconds from the answer until the command told the time, and the conversation.
        """
        request = chat_pb2.SendMessageRequest(
            conversation_id=conversation, request_id=uuid.uuid4().hex, text=text
        )
        answered = told = 0
        async for item in self._items(request):
            if item.WhichOneof("item") == "accepted":
                conversation = item.accepted.conversation_id
            match item.event.WhichOneof("payload"):
                case "approval_requested":
                    answered = await self._approve(item.event.approval_requested.approval_id)
                case "tool_call_finished":
                    (found,) = re.findall(r"\b\d{19}\b", item.event.tool_call_finished.content)
                    told = int(found)
                case _:
                    pass
        return (told - answered) / 1_000_000, conversation

    async def _approve(self, approval_id: str) -> int:
        request = approval_pb2.GetApprovalRequest(approval_id=approval_id)
        shown = (await self._approvals.GetApproval(request, metadata=self._metadata)).approval
        answer = approval_pb2.ResolveApprovalRequest(
            approval_id=approval_id, answer=approval_pb2.ANSWER_APPROVE, digest=shown.digest
        )
        now = time.time_ns()
        await self._approvals.ResolveApproval(answer, metadata=self._metadata)
        return now

    async def _items(self, request: chat_pb2.SendMessageRequest) -> AsyncIterator[chat_pb2.StreamItem]:
        async for response in self._chat.SendMessage(request, metadata=self._metadata, timeout=120):
            for item in response.items:
                yield item

    async def turn(self, text: str, conversation: str = "") -> tuple[float, str]:
        """Send a message and wait for its turn to end; return milliseconds and the conversation."""
        begun = time.perf_counter()
        request = chat_pb2.SendMessageRequest(
            conversation_id=conversation, request_id=uuid.uuid4().hex, text=text
        )
        state = ""
        async for item in self._items(request):
            if item.WhichOneof("item") == "accepted":
                conversation = item.accepted.conversation_id
            elif item.event.WhichOneof("payload") == "turn_finished":
                state = event_pb2.TurnState.Name(item.event.turn_finished.state)
        if state != "TURN_STATE_COMPLETED":
            raise RuntimeError(f"the turn ended as {state}")
        return (time.perf_counter() - begun) * 1000, conversation
