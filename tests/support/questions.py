"""Questions of a gateway, for tests: bring a turn to ask, read what is asked, see how it ended."""

from dataclasses import dataclass

import grpc.aio
import pytest
from grpc import StatusCode

from tests.support.client import DEADLINE, Client, finished, info_of
from tyrum.approval.v1 import approval_pb2
from tyrum.chat.v1 import event_pb2


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn that waits for answers."""

    conversation: str
    turn: str
    approvals: tuple[str, ...]


async def asked(client: Client, text: str, questions: int = 1) -> Asked:
    """Send a message, disconnect, and wait until its turn has asked."""
    stream = client.send(text)
    accepted = (await anext(stream)).accepted
    await stream.aclose()
    found: list[str] = []
    after = accepted.sequence
    while len(found) < questions:
        event = (await client.until(accepted.conversation_id, "approval_requested", after))[-1]
        found.append(event.approval_requested.approval_id)
        after = event.sequence
    return Asked(accepted.conversation_id, accepted.turn_id, tuple(found))


async def ended(client: Client, question: Asked) -> list[event_pb2.Event]:
    """Wait until the turn has ended; return its transcript."""
    await client.until(question.conversation, "turn_finished")
    return await client.events(question.conversation)


async def shown(client: Client, approval: str) -> approval_pb2.Approval:
    """Read an approval."""
    request = approval_pb2.GetApprovalRequest(approval_id=approval)
    return (await client.approvals.GetApproval(request, metadata=client.metadata, timeout=DEADLINE)).approval


async def refused(client: Client, approval: str, answer: int, digest: str) -> tuple[StatusCode, str]:
    """Answer an approval that does not take the answer; return code and reason."""
    request = approval_pb2.ResolveApprovalRequest(approval_id=approval, digest=digest)
    request.answer = answer  # type: ignore[assignment]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.approvals.ResolveApproval(request, metadata=client.metadata, timeout=DEADLINE)
    return caught.value.code(), info_of(caught.value).reason


def states(events: list[event_pb2.Event]) -> list[str]:
    """Final states of the calls, and of the turn."""
    calls = [event_pb2.CallState.Name(call.state).removeprefix("CALL_STATE_") for call in finished(events)]
    return [*calls, event_pb2.TurnState.Name(events[-1].turn_finished.state).removeprefix("TURN_STATE_")]
