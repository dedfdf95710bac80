"""A chat client that measures turns."""

import time
import uuid

import grpc
import grpc.aio

from tyrum.chat.v1 import chat_pb2, event_pb2
from tyrum.chat.v1.chat_pb2_grpc import ChatServiceStub


class BenchClient:
    """One connection to a gateway."""

    def __init__(self, address: str, token: str) -> None:
        self.channel = grpc.aio.insecure_channel(address, options=[("grpc.default_authority", "localhost")])
        self._chat = ChatServiceStub(self.channel)
        self._metadata = (("authorization", f"Bearer {token}"),)

    async def turn(self, text: str, conversation: str = "") -> tuple[float, str]:
        """Send a message and wait for its turn to end; return milliseconds and the conversation."""
        begun = time.perf_counter()
        request = chat_pb2.SendMessageRequest(
            conversation_id=conversation, request_id=uuid.uuid4().hex, text=text
        )
        state = ""
        async for item in self._chat.SendMessage(request, metadata=self._metadata, timeout=120):
            if item.WhichOneof("item") == "accepted":
                conversation = item.accepted.conversation_id
            elif item.event.WhichOneof("payload") == "turn_finished":
                state = event_pb2.TurnState.Name(item.event.turn_finished.state)
        if state != "TURN_STATE_COMPLETED":
            raise RuntimeError(f"the turn ended as {state}")
        return (time.perf_counter() - begun) * 1000, conversation
