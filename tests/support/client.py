"""A chat client for tests: thin over the generated stubs, every call with a deadline."""

import os
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import grpc
import grpc.aio
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

from tests.support.gateway import RunningGateway
from tyrum.approval.v1 import approval_pb2
from tyrum.approval.v1.approval_pb2_grpc import ApprovalServiceStub
from tyrum.audit.v1.audit_pb2_grpc import AuditServiceStub
from tyrum.catalog.v1.catalog_pb2_grpc import CatalogServiceStub
from tyrum.chat.v1 import chat_pb2, event_pb2
from tyrum.chat.v1.chat_pb2_grpc import ChatServiceStub
from tyrum.identity.v1.identity_pb2_grpc import IdentityServiceStub
from tyrum.policy.v1.policy_pb2_grpc import PolicyServiceStub
from tyrum.run.v1.run_pb2_grpc import RunServiceStub

DEADLINE = float(os.environ.get("TYRUM_TEST_DEADLINE", "30"))
"""Seconds; checks that are expected to fail get less to wait for what never comes."""


class Client:
    """One connection to a gateway."""

    def __init__(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        self.channel = channel
        self.metadata = metadata
        self.chat = ChatServiceStub(channel)
        self.approvals = ApprovalServiceStub(channel)
        self.catalog = CatalogServiceStub(channel)
        self.policy = PolicyServiceStub(channel)
        self.audit = AuditServiceStub(channel)
        self.runs = RunServiceStub(channel)
        self.identity = IdentityServiceStub(channel)

    async def send(
        self, text: str, conversation_id: str = "", request_id: str | None = None
    ) -> AsyncGenerator[chat_pb2.StreamItem, None]:
        """Send a message; iterate its turn."""
        request = chat_pb2.SendMessageRequest(
            conversation_id=conversation_id, request_id=request_id or uuid.uuid4().hex, text=text
        )
        call = self.chat.SendMessage(request, metadata=self.metadata, timeout=DEADLINE)
        try:
            async for response in call:
                for item in response.items:
                    yield item
        finally:
            call.cancel()

    async def turn(
        self, text: str, conversation_id: str = ""
    ) -> tuple[chat_pb2.Accepted, list[event_pb2.Event]]:
        """Send a message and collect its durable events until the turn rests."""
        accepted, events = chat_pb2.Accepted(), []
        async for item in self.send(text, conversation_id):
            if item.HasField("accepted"):
                accepted = item.accepted
            elif item.HasField("event"):
                events.append(item.event)
        return accepted, events

    async def events(self, conversation_id: str, after: int = 0) -> list[event_pb2.Event]:
        """Read the transcript after a sequence."""
        found: list[event_pb2.Event] = []
        while True:
            request = chat_pb2.ListEventsRequest(
                conversation_id=conversation_id,
                after_sequence=found[-1].sequence if found else after,
                page_size=500,
            )
            page = await self.chat.ListEvents(request, metadata=self.metadata, timeout=DEADLINE)
            found += page.events
            if not page.more:
                return found

    async def until(
        self, conversation_id: str, payload: str, after: int = 0, timeout: float = DEADLINE
    ) -> list[event_pb2.Event]:
        """Watch after a sequence until an event with this payload; return the durable events up to it."""
        seen = []
        request = chat_pb2.WatchRequest(
            conversation_id=conversation_id, after_sequence=after, durable_only=True
        )
        watch = self.chat.Watch(request, metadata=self.metadata, timeout=timeout)
        async for response in watch:
            for item in response.items:
                seen.append(item.event)
                if item.event.WhichOneof("payload") == payload:
                    watch.cancel()
                    return seen
        raise AssertionError(f"the stream ended without `{payload}`")

    async def resolve(self, approval_id: str, *, approve: bool, reason: str = "") -> approval_pb2.Approval:
        """Answer an approval with the digest that is shown now."""
        shown = await self.approvals.GetApproval(
            approval_pb2.GetApprovalRequest(approval_id=approval_id), metadata=self.metadata, timeout=DEADLINE
        )
        answer = approval_pb2.ANSWER_APPROVE if approve else approval_pb2.ANSWER_DENY
        response = await self.approvals.ResolveApproval(
            approval_pb2.ResolveApprovalRequest(
                approval_id=approval_id, answer=answer, digest=shown.approval.digest, reason=reason
            ),
            metadata=self.metadata,
            timeout=DEADLINE,
        )
        return response.approval


@asynccontextmanager
async def connected(gateway: RunningGateway) -> AsyncIterator[Client]:
    """Connect to a gateway as its operator."""
    options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(gateway.address, options=options) as channel:
        yield Client(channel, gateway.metadata)


def kinds(events: list[event_pb2.Event]) -> list[str]:
    """Name the payloads."""
    return [event.WhichOneof("payload") or "" for event in events]


def finished(events: list[event_pb2.Event]) -> list[event_pb2.ToolCallFinished]:
    """The final states of the calls among events."""
    return [event.tool_call_finished for event in events if event.HasField("tool_call_finished")]


def info_of(error: grpc.aio.AioRpcError) -> ErrorInfo:
    """The one ErrorInfo of an error."""
    status = rpc_status.from_call(cast("grpc.Call", error))
    assert status is not None, f"{error.code()} has no details: {error.details()}"
    found = []
    for detail in status.details:
        info = ErrorInfo()
        if detail.Unpack(info):
            found.append(info)
    assert len(found) == 1, f"{error.code()} has {len(found)} ErrorInfo"
    return found[0]
