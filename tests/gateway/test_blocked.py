"""Turns that wait for a human cost rows and nothing else; those whose time is over stand in nobody's way."""

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support import blocked, configs, observed_gateway
from tests.support.client import DEADLINE, Client, connected, finished
from tests.support.gateway import RunningGateway
from tyrum.approval.v1 import approval_pb2
from tyrum.chat.v1 import event_pb2

WAITING = 500
"""`python -m benchmarks.blocked` has 10,000."""
EXPIRED = 100
ROOM = 20 * 1024 * 1024


pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    """A gateway that can be observed, not started yet."""
    gateway = RunningGateway(tmp_path / "state", configs.write(tmp_path, more=blocked.PERMITTED))
    gateway.launcher = (sys.executable, observed_gateway.__file__)
    yield gateway
    gateway.kill()


async def asked(client: Client) -> str:
    """Have a real turn ask, and return its approval."""
    stream = client.send("ask")
    accepted = (await anext(stream)).accepted
    await stream.aclose()
    events = await client.until(accepted.conversation_id, "approval_requested")
    return events[-1].approval_requested.approval_id


async def pending(client: Client) -> int:
    """Count open questions."""
    request = approval_pb2.ListApprovalsRequest(page_size=200)
    found = 0
    while True:
        page = await client.approvals.ListApprovals(request, metadata=client.metadata, timeout=DEADLINE)
        found += len(page.approvals)
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def test_turns_that_wait_hold_nothing_and_those_that_expire_hold_up_nobody(
    gateway: RunningGateway,
) -> None:
    """Messages are answered while many questions expire, and what waits has no task and no memory."""
    gateway.start()
    idle = await observed_gateway.observe(gateway.state_dir, gateway.pid)
    async with connected(gateway) as client:
        like = await asked(client)
    gateway.kill()
    database = gateway.state_dir / "tyrum.sqlite3"
    await blocked.write(database, EXPIRED, like=like, text="ask", lasts=timedelta(seconds=-1))
    waiting = await blocked.write(database, WAITING, like=like, text="ask", lasts=timedelta(hours=1))
    gateway.start()
    async with connected(gateway) as client:
        while await pending(client) > WAITING + 1:
            _, events = await client.turn("hello")
            assert events[-1].turn_finished.state == event_pb2.TURN_STATE_COMPLETED
        assert configs.count(gateway.state_dir, "asked") == 0
    full = await observed_gateway.observe(gateway.state_dir, gateway.pid)
    assert full.tasks < idle.tasks + WAITING / 50, "what one in fifty of them would hold is not there"
    assert full.rss <= idle.rss + ROOM
    async with connected(gateway) as client:
        resolved = await client.resolve(waiting[WAITING // 2], approve=True)
        events = await client.until(resolved.conversation_id, "turn_finished")
    assert [call.state for call in finished(events)] == [event_pb2.CALL_STATE_SUCCEEDED]
    assert configs.count(gateway.state_dir, "asked") == 1
