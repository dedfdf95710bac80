"""Reasons of the gateway's services: what does not exist, what fails inside, what comes too late."""

import asyncio
import signal
import sys
from collections.abc import Awaitable
from contextlib import aclosing
from pathlib import Path

import grpc.aio
import pytest
from grpc import StatusCode

from tests.support import configs, failing_gateway
from tests.support.client import DEADLINE, Client, connected, info_of
from tests.support.gateway import RunningGateway, serving
from tyrum.approval.v1 import approval_pb2
from tyrum.audit.v1 import audit_pb2
from tyrum.catalog.v1 import catalog_pb2
from tyrum.chat.v1 import chat_pb2
from tyrum.identity.v1 import identity_pb2
from tyrum.policy.v1 import policy_pb2
from tyrum.run.v1 import run_pb2

NOBODY = "0" * 26
WAITING = """\
version: 1
scenarios:
  - user: wait
    steps:
      - deltas: ["Waiting."]
        barrier: open
"""


async def refused(call: Awaitable[object]) -> grpc.aio.AioRpcError:
    """Wait for the refusal of a call."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_what_does_not_exist_is_named(tmp_path: Path) -> None:
    """An approval, a provider, a turn and a conversation that are not there are RESOURCE_NOT_FOUND."""
    with serving(tmp_path, configs.write(tmp_path)) as gateway:
        async with connected(gateway) as client:
            approval = f"appr_{NOBODY}"
            metadata = client.metadata
            for domain, call in (
                (
                    "tyrum.approval.v1",
                    client.approvals.GetApproval(
                        approval_pb2.GetApprovalRequest(approval_id=approval),
                        metadata=metadata,
                        timeout=DEADLINE,
                    ),
                ),
                (
                    "tyrum.approval.v1",
                    client.approvals.ResolveApproval(
                        approval_pb2.ResolveApprovalRequest(
                            approval_id=approval, answer=approval_pb2.ANSWER_DENY
                        ),
                        metadata=metadata,
                        timeout=DEADLINE,
                    ),
                ),
                (
                    "tyrum.policy.v1",
                    client.policy.RevokeOverride(
                        policy_pb2.RevokeOverrideRequest(override_id=f"over_{NOBODY}"),
                        metadata=metadata,
                        timeout=DEADLINE,
                    ),
                ),
                (
                    "tyrum.catalog.v1",
                    client.catalog.GetProvider(
                        catalog_pb2.GetProviderRequest(name="nobody"), metadata=metadata, timeout=DEADLINE
                    ),
                ),
                (
                    "tyrum.chat.v1",
                    client.chat.GetTurn(
                        chat_pb2.GetTurnRequest(turn_id=f"turn_{NOBODY}"), metadata=metadata, timeout=DEADLINE
                    ),
                ),
                (
                    "tyrum.run.v1",
                    client.runs.GetRun(
                        run_pb2.GetRunRequest(run_id=f"run_{NOBODY}"), metadata=metadata, timeout=DEADLINE
                    ),
                ),
                ("tyrum.chat.v1", client.turn("hello", f"conv_{NOBODY}")),
            ):
                error = await refused(call)
                info = info_of(error)
                assert (error.code(), info.domain, info.reason) == (
                    StatusCode.NOT_FOUND,
                    domain,
                    "RESOURCE_NOT_FOUND",
                )


async def test_a_failure_inside_tells_an_incident_and_nothing_else(tmp_path: Path) -> None:
    """Each service answers INTERNAL with an incident id; the cause is in the log, under that id."""
    launcher = (sys.executable, failing_gateway.__file__)
    gateway = RunningGateway(tmp_path / "state", configs.write(tmp_path), launcher=launcher)
    try:
        gateway.start()
        async with connected(gateway) as client:
            for domain, call in (
                (
                    "tyrum.chat.v1",
                    client.chat.ListConversations(
                        chat_pb2.ListConversationsRequest(), metadata=client.metadata, timeout=DEADLINE
                    ),
                ),
                (
                    "tyrum.approval.v1",
                    client.approvals.ListApprovals(
                        approval_pb2.ListApprovalsRequest(), metadata=client.metadata, timeout=DEADLINE
                    ),
                ),
                (
                    "tyrum.audit.v1",
                    client.audit.ListAudit(
                        audit_pb2.ListAuditRequest(), metadata=client.metadata, timeout=DEADLINE
                    ),
                ),
                (
                    "tyrum.run.v1",
                    client.runs.ListRuns(
                        run_pb2.ListRunsRequest(), metadata=client.metadata, timeout=DEADLINE
                    ),
                ),
                (
                    "tyrum.catalog.v1",
                    client.catalog.ListBindings(
                        catalog_pb2.ListBindingsRequest(), metadata=client.metadata, timeout=DEADLINE
                    ),
                ),
                (
                    "tyrum.policy.v1",
                    client.policy.ListOverrides(
                        policy_pb2.ListOverridesRequest(), metadata=client.metadata, timeout=DEADLINE
                    ),
                ),
                (
                    "tyrum.identity.v1",
                    client.identity.ListPrincipals(
                        identity_pb2.ListPrincipalsRequest(), metadata=client.metadata, timeout=DEADLINE
                    ),
                ),
            ):
                error = await refused(call)
                info = info_of(error)
                assert (error.code(), info.domain, info.reason) == (StatusCode.INTERNAL, domain, "INTERNAL")
                incident = info.metadata["incident"]
                assert incident in (error.details() or "")
                assert incident in gateway.log
                assert "canary" not in f"{error.details()} {error.trailing_metadata()} {info}"
        assert failing_gateway.CAUSE in gateway.log
    finally:
        gateway.kill()


async def test_a_gateway_that_drains_takes_no_message(tmp_path: Path) -> None:
    """After SIGTERM new messages are DRAINING while a turn comes to rest, then watches; the gateway ends."""
    gateway = RunningGateway(tmp_path / "state", configs.write(tmp_path, script=WAITING))
    gateway.start()
    try:
        async with connected(gateway) as client:
            running = client.send("wait")
            await anext(running)
            inbox = client.approvals.WatchApprovals(
                approval_pb2.WatchApprovalsRequest(), metadata=client.metadata, timeout=2 * DEADLINE
            )
            assert (await anext(aiter(inbox))).HasField("caught_up")
            assert gateway.process is not None
            gateway.process.send_signal(signal.SIGTERM)
            error = await _once_draining(client)
            assert (error.code(), info_of(error).reason) == (StatusCode.UNAVAILABLE, "DRAINING")
            (tmp_path / "open").touch()
            async for item in running:
                if item.event.HasField("turn_finished"):
                    break
            else:
                pytest.fail("the turn did not end")
            await running.aclose()
            error = await refused(anext(aiter(inbox)))
            assert (error.code(), info_of(error).reason) == (StatusCode.UNAVAILABLE, "DRAINING")
        assert await asyncio.to_thread(gateway.process.wait, 30) == 0
    finally:
        gateway.kill()


async def _once_draining(client: Client) -> grpc.aio.AioRpcError:
    """Send messages until one is refused."""
    async with asyncio.timeout(30):
        while True:
            try:
                async with aclosing(client.send("late")) as accepted:
                    await anext(accepted)
            except grpc.aio.AioRpcError as error:
                return error
