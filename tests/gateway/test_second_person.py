"""Where somebody else has to approve: who may answer what is told, refused and offered alike."""

import asyncio
import hashlib
import re
from pathlib import Path

from grpc import StatusCode

from tests.storage.builders import new, now
from tests.support import configs
from tests.support.client import Client, connected
from tests.support.gateway import TYRUM, RunningGateway, client_environment, serving
from tests.support.questions import asked, ended, refused, shown, states
from tests.support.terminal import on_terminal
from tyrum.approval.v1 import approval_pb2
from tyrum_gateway.domain.ids import PrincipalId
from tyrum_gateway.storage import SqliteStore

SCRIPT = """\
version: 1
scenarios:
  - user: other
    steps:
      - calls: [{tool: process.run, arguments: {argv: [touch, other]}}]
      - deltas: ["Done."]
"""
TOKENS = {"approver": "second-person", "chat": "talks-only"}
"""Of principals that have the one role that they are named after."""


def test_a_second_person_has_to_approve_where_the_operator_says_so(tmp_path: Path) -> None:
    """With `requester_may_resolve: false` who asked can only deny; somebody else approves."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)

    async def prepare() -> None:
        async with await SqliteStore.open(state / "tyrum.sqlite3") as store:
            for role, token in TOKENS.items():
                digest = hashlib.sha256(token.encode()).hexdigest()
                await store.ensure_principal(new(PrincipalId), role, [role], digest, now())

    async def check(gateway: RunningGateway) -> None:
        async with connected(gateway) as client:
            question = await asked(client, "other")
            (approval,) = question.approvals
            told = await shown(client, approval)
            assert (told.requested_by_name, told.deny_barred) == ("operator", "")
            assert "somebody else has to approve it" in told.approve_barred
            digest = told.digest
            for answer in (approval_pb2.ANSWER_APPROVE, approval_pb2.ANSWER_APPROVE_ALWAYS):
                assert await refused(client, approval, answer, digest) == (
                    StatusCode.PERMISSION_DENIED,
                    "REQUESTER_MAY_NOT_APPROVE",
                )
            approver = Client(client.channel, (("authorization", f"Bearer {TOKENS['approver']}"),))
            assert (await shown(approver, approval)).approve_barred == ""
            await approver.resolve(approval, approve=True)
            assert states(await ended(client, question)) == ["SUCCEEDED", "COMPLETED"]
            denied = await asked(client, "other")
            await client.resolve(denied.approvals[0], approve=False)
            assert states(await ended(client, denied)) == ["DENIED", "COMPLETED"]

    asyncio.run(prepare())
    more = "approvals: {requester_may_resolve: false}"
    config = configs.write(tmp_path, script=SCRIPT, rules="      []", more=more)
    with serving(tmp_path, config) as gateway:
        asyncio.run(check(gateway))
        offers_what_can_be_taken(gateway, tmp_path / "talker")


def offers_what_can_be_taken(gateway: RunningGateway, talker: Path) -> None:
    """At a terminal the requester is offered to deny, who only talks nothing; both are told who approves."""
    environment = client_environment(gateway.state_dir) | {"TERM": "xterm", "NO_COLOR": "1"}
    others = "hint: somebody else with the role approver: tyrum approvals approve appr_"
    with on_terminal([str(TYRUM), "chat", "other"], environment) as terminal:
        terminal.wait_for(others)
        terminal.wait_for("\nn: not at all\nDeny this? [n] ")
        terminal.type("y\n")
        terminal.wait_for("you asked for this call: somebody else has to approve it")
        terminal.wait_for("Deny this? [n] ")
        waiting = re.search(r"appr_\w{26}", terminal.screen)
        assert waiting
        with on_terminal([str(TYRUM), "approvals", "approve", waiting[0]], environment) as elsewhere:
            elsewhere.wait_for("error: you asked for this call: somebody else has to approve it")
            elsewhere.wait_for(others)
            assert elsewhere.end() == 4
        terminal.type("n\n")
        terminal.wait_for("Reason, told to the agent")
        terminal.type("\n")
        assert terminal.end() == 5
    talker.touch(mode=0o600)
    talker.write_text(TOKENS["chat"], encoding="ascii")
    environment["TYRUM_TOKEN_FILE"] = str(talker)
    with on_terminal([str(TYRUM), "chat", "other"], environment) as terminal:
        told = terminal.wait_for("is not yours to answer: answering needs the role `approver`")
        terminal.wait_for(others)
        found = re.search(r"approval (appr_\w{26}) is", told)
        assert found
        assert asyncio.run(approved(gateway, found[1])).requested_by_name == "chat"
        assert terminal.end() == 0
    assert "Approve exactly this?" not in terminal.screen


async def approved(gateway: RunningGateway, approval_id: str) -> approval_pb2.Approval:
    """Approve as the operator."""
    async with connected(gateway) as client:
        return await client.resolve(approval_id, approve=True)
