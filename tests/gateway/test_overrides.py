"""Approving for good on a real gateway: what it permits, what it refuses, and its end."""

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode

from tests.storage.builders import new, now
from tests.support import configs
from tests.support.client import DEADLINE, Client, connected, info_of, kinds
from tests.support.gateway import RunningGateway, serving
from tests.support.questions import Asked, asked, ended, refused, shown, states
from tyrum.approval.v1 import approval_pb2
from tyrum.chat.v1 import event_pb2
from tyrum.policy.v1 import policy_pb2
from tyrum_gateway.domain.ids import PrincipalId
from tyrum_gateway.storage import SqliteStore
from tyrum_gateway.storage.times import to_microseconds

SCRIPT = """\
version: 1
scenarios:
  - user: {prefix: "touch "}
    steps:
      - calls: [{tool: process.run, arguments: {argv: [touch, made]}}]
      - deltas: ["Done."]
  - user: other
    steps:
      - calls: [{tool: process.run, arguments: {argv: [touch, other]}}]
      - deltas: ["Done."]
  - user: {prefix: "head "}
    steps:
      - calls: [{tool: process.run, arguments: {argv: [head, made]}}]
      - deltas: ["Done."]
  - user: {prefix: "brief "}
    steps:
      - calls: [{tool: process.run, arguments: {argv: [touch, brief]}}]
      - deltas: ["Done."]
  - user: twice
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [touch, twin]}}
          - {tool: process.run, arguments: {argv: [touch, twin]}}
      - deltas: ["Done."]
  - user: revoked
    steps:
      - calls: [{tool: process.run, arguments: {argv: [touch, later]}}]
      - deltas: ["Done."]
  - user: between
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [touch, first]}}
          - {tool: process.run, arguments: {argv: [touch, later]}}
      - deltas: ["Done."]
  - user: bash
    steps:
      - calls: [{tool: process.run, arguments: {argv: [bash, -c, "echo hello"]}}]
      - deltas: ["Done."]
  - user: env
    steps:
      - calls: [{tool: process.run, arguments: {argv: [env, touch, made]}}]
      - deltas: ["Done."]
  - user: shell
    steps:
      - calls: [{tool: process.run, arguments: {shell: "touch made && touch other"}}]
      - deltas: ["Done."]
  - user: input
    steps:
      - calls: [{tool: process.run, arguments: {argv: [tee, made], stdin: "x"}}]
      - deltas: ["Done."]
  - user: own
    steps:
      - calls: [{tool: process.run, arguments: {argv: [OWN]}}]
      - deltas: ["Done."]
  - user: {prefix: ""}
    steps:
      - deltas: ["Said."]
"""
APPROVER = "approver-" + "t" * 40
STORED = {
    "override_id": "over_" + "0" * 26,
    "agent": "default",
    "rule": '{"author":"Eve","reason":"","tool":"process.run","effect":"state_changing","cwd":".",'
    '"program":"/usr/bin/touch","argv":[],"rest":true,"env":[],"secrets":[]}',
    "summary": "/usr/bin/touch <any more> (in .)",
    **dict.fromkeys(("created_by", "created_method", "created_from", "created_reason"), "Eve"),
    "created_at": 1,
    "revoked_by": "",
    "revoked_reason": "",
}
"""A permission of a gateway that knew fewer programs that start others."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One gateway for this file; only `own` has a rule, and there is somebody who only approves."""
    directory = tmp_path_factory.mktemp("overrides").resolve()
    own = directory / "own"
    own.write_text("#!/bin/sh\n", encoding="utf-8")
    own.chmod(0o755)
    state = directory / "state"
    state.mkdir(mode=0o700)

    async def prepare() -> None:
        async with await SqliteStore.open(state / "tyrum.sqlite3") as store:
            digest = hashlib.sha256(APPROVER.encode()).hexdigest()
            who = new(PrincipalId)
            await store.ensure_principal(who, "approver", ["approver"], digest, now())
        with closing(sqlite3.connect(state / "tyrum.sqlite3")) as connection, connection:
            row = {**STORED, "created_principal_id": who, "expires_at": to_microseconds(now()) + 10**12}
            columns = ", ".join(row)
            holes = ", ".join(f":{name}" for name in row)
            connection.execute(f"INSERT INTO overrides ({columns}) VALUES ({holes})", row)  # noqa: S608

    asyncio.run(prepare())
    match = f"{{tool: process.run, program: {own}}}"
    rule = f"{{id: own, decision: allow, author: ops, may_start_others: true, match: {match}}}"
    script = SCRIPT.replace("OWN", str(own))
    with serving(directory, configs.write(directory, script=script, rules=f"      - {rule}")) as running:
        yield running


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[Client]:
    """The operator."""
    async with connected(gateway) as connection:
        yield connection


async def always(
    client: Client,
    approval: str,
    *,
    seconds: float | None = None,
    pattern: policy_pb2.OverridePattern | None = None,
) -> approval_pb2.Approval:
    """Permit for good what is shown now."""
    request = approval_pb2.ResolveApprovalRequest(
        approval_id=approval,
        answer=approval_pb2.ANSWER_APPROVE_ALWAYS,
        digest=(await shown(client, approval)).digest,
        reason="it is mine",
        override_pattern=pattern,
    )
    if seconds is not None:
        request.override_expires_in.CopyFrom(Duration(nanos=int(seconds * 1e9)))
    answer = await client.approvals.ResolveApproval(request, metadata=client.metadata, timeout=DEADLINE)
    return answer.approval


async def revoke(client: Client, override: str) -> policy_pb2.Override:
    """End an override."""
    request = policy_pb2.RevokeOverrideRequest(override_id=override, reason="no more")
    answer = await client.policy.RevokeOverride(request, metadata=client.metadata, timeout=DEADLINE)
    return answer.override


def decisions(events: list[event_pb2.Event]) -> list[event_pb2.ToolCallDecided]:
    """What policy said."""
    return [event.tool_call_decided for event in events if event.HasField("tool_call_decided")]


def audit(gateway: RunningGateway, subject: str) -> list[tuple[str, str, dict[str, object]]]:
    """What the audit log says about something."""
    with closing(sqlite3.connect(gateway.state_dir / "tyrum.sqlite3")) as connection:
        rows = connection.execute(
            "SELECT kind, actor, details FROM audit WHERE subject = ? ORDER BY sequence", (subject,)
        ).fetchall()
    return [(kind, actor, json.loads(details)) for kind, actor, details in rows]


async def test_what_was_permitted_for_good_runs_unasked_until_it_is_revoked(
    gateway: RunningGateway, client: Client
) -> None:
    """The same call is not asked about again, others are; records name override, human and origin."""
    question = await asked(client, "touch one")
    approved = await always(client, question.approvals[0])
    override = approved.override_id
    assert approved.outcome == event_pb2.APPROVAL_OUTCOME_APPROVED
    assert (approved.resolved_by, approved.method, approved.agent) == ("operator", "token", "default")
    assert approved.resolved_from.startswith("unix")
    assert await always(client, question.approvals[0]) == approved, "the same answer again"
    first = await ended(client, question)
    (resolved,) = [event.approval_resolved for event in first if event.HasField("approval_resolved")]
    assert (resolved.override_id, resolved.resolved_from) == (override, approved.resolved_from)

    _, events = await client.turn("touch again")
    (decided,) = decisions(events)
    assert (decided.decision, decided.rule_id) == (event_pb2.DECISION_ALLOW, override)
    assert (decided.author, states(events)) == ("operator", ["SUCCEEDED", "COMPLETED"])
    assert "approval_requested" not in kinds(events)
    different = await asked(client, "other")
    await client.resolve(different.approvals[0], approve=False)

    listed = json.loads(gateway.tyrum("policy", "overrides", "list", "--output", "json").stdout)
    (entry,) = [item for item in listed if item["override_id"] == override]
    assert entry["summary"] == "/usr/bin/touch made (in .)"
    assert (entry["approval_id"], entry["created_by"]) == (question.approvals[0], "operator")
    assert (entry["created_reason"], entry["created_from"]) == ("it is mine", approved.resolved_from)

    ran = gateway.tyrum("policy", "overrides", "revoke", override, "--reason", "enough")
    assert ran.returncode == 0, ran.stderr
    assert (await revoke(client, override)).revoked_reason == "enough", "the first revocation stays"
    again = await asked(client, "touch more")
    await client.resolve(again.approvals[0], approve=False)
    assert states(await ended(client, again)) == ["DENIED", "COMPLETED"]

    created, ended_by = audit(gateway, override)
    principal = (await shown(client, question.approvals[0])).requested_by
    assert (created[0], created[1], created[2]["by"]) == ("override.created", principal, "operator")
    assert created[2]["from"] == ended_by[2]["from"] == approved.resolved_from
    assert (ended_by[0], ended_by[1], ended_by[2]["reason"]) == ("override.revoked", principal, "enough")
    answer = audit(gateway, question.approvals[0])[-1]
    assert (answer[0], answer[1]) == ("approval.resolved", principal)
    assert (answer[2]["override"], answer[2]["from"]) == (override, approved.resolved_from)


async def test_a_permission_that_is_too_wide_by_now_is_superseded(
    gateway: RunningGateway, client: Client
) -> None:
    """A start ends stored permissions that leave a program open that may start others, and tells of each."""
    override = str(STORED["override_id"])
    (found,) = [
        item
        for item in json.loads(
            gateway.tyrum("policy", "overrides", "list", "--all", "--output", "json").stdout
        )
        if item["override_id"] == override
    ]
    why = "superseded: it leaves arguments open, and `touch` may start what they name"
    assert (found["revoked_by"], found["revoked_reason"][: len(why)]) == ("kernel", why)
    assert override not in await listed(client, ended=False)
    assert [(kind, actor) for kind, actor, _ in audit(gateway, override)] == [("override.revoked", "kernel")]
    assert f"warning: permission {override} (/usr/bin/touch <any more> (in .)) {why}" in gateway.log
    assert "superseded" in gateway.tyrum("policy", "overrides", "list", "--all").stdout


async def test_the_path_of_a_program_that_others_can_replace_permits_nothing(client: Client) -> None:
    """A rule that allows it by its path is not enough: the call asks, and says why it cannot be for good."""
    question = await asked(client, "own")
    told = await shown(client, question.approvals[0])
    assert told.rule_id == "default.replaceable"
    assert "caution      `own` can be replaced: /" in told.summary
    await client.resolve(question.approvals[0], approve=False)
    await ended(client, question)


@pytest.mark.parametrize("text", ["bash", "env", "shell", "input", "own"])
async def test_what_runs_anything_is_not_permitted_for_good(client: Client, text: str) -> None:
    """Interpreter, wrapper, shell text, input, a replaceable program: refused with the reason; once works."""
    question = await asked(client, text)
    (approval,) = question.approvals
    told = await shown(client, approval)
    assert (told.approve_barred, told.deny_barred) == ("", "")
    assert "cannot be permitted for good" in told.always_barred, "told before anybody is asked"
    digest = told.digest
    assert await refused(client, approval, approval_pb2.ANSWER_APPROVE_ALWAYS, digest) == (
        StatusCode.FAILED_PRECONDITION,
        "OVERRIDE_NOT_DERIVABLE",
    )
    assert not (await shown(client, approval)).outcome
    await client.resolve(approval, approve=True)
    assert states(await ended(client, question)) == ["SUCCEEDED", "COMPLETED"]


async def test_permitting_for_good_is_an_operators_business(client: Client) -> None:
    """A principal who only approves cannot permit for good, and can still approve once."""
    question = await asked(client, "other")
    (approval,) = question.approvals
    digest = (await shown(client, approval)).digest
    approver = Client(client.channel, (("authorization", f"Bearer {APPROVER}"),))
    assert "`operator`" in (await shown(approver, approval)).always_barred
    assert await refused(approver, approval, approval_pb2.ANSWER_APPROVE_ALWAYS, digest) == (
        StatusCode.PERMISSION_DENIED,
        "ROLE_REQUIRED",
    )
    once = await approver.resolve(approval, approve=True)
    assert (once.resolved_by, once.override_id) == ("approver", "")
    assert await refused(client, approval, approval_pb2.ANSWER_APPROVE_ALWAYS, digest) == (
        StatusCode.FAILED_PRECONDITION,
        "ALREADY_RESOLVED",
    )
    await ended(client, question)


async def test_questions_that_were_asked_before_stay_questions(client: Client) -> None:
    """Permitting one of two equal calls for good answers no question but its own."""
    question = await asked(client, "twice", 2)
    approved = await always(client, question.approvals[0])
    assert not (await shown(client, question.approvals[1])).outcome
    await client.resolve(question.approvals[1], approve=False)
    # The denial is final at once, whether or not the call before it has ended.
    assert sorted(states(await ended(client, question))) == ["COMPLETED", "DENIED", "SUCCEEDED"]
    await revoke(client, approved.override_id)


async def test_a_pattern_permits_what_the_operator_wrote(client: Client) -> None:
    """A pattern on the wire admits what it says; one that does not fit the call resolves nothing."""
    question = await asked(client, "head one")
    (approval,) = question.approvals
    wrong = policy_pb2.OverridePattern(argv=[policy_pb2.ArgumentMatch(literal="other")])
    empty = policy_pb2.OverridePattern(argv=[policy_pb2.ArgumentMatch(prefix="")])
    for pattern in (wrong, empty, policy_pb2.OverridePattern(env=["LD_PRELOAD"], rest=True)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await always(client, approval, pattern=pattern)
        assert (caught.value.code(), info_of(caught.value).reason) == (
            StatusCode.INVALID_ARGUMENT,
            "FIELD_INVALID",
        )
    for request in (
        approval_pb2.ResolveApprovalRequest(override_pattern=policy_pb2.OverridePattern(rest=True)),
        approval_pb2.ResolveApprovalRequest(override_expires_in=Duration(seconds=60)),
    ):
        request.approval_id, request.answer = approval, approval_pb2.ANSWER_DENY
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.approvals.ResolveApproval(request, metadata=client.metadata, timeout=DEADLINE)
        assert info_of(caught.value).reason == "FIELD_INVALID"
    assert not (await shown(client, approval)).outcome
    wide = policy_pb2.OverridePattern(argv=[policy_pb2.ArgumentMatch(any=True)])
    approved = await always(client, approval, pattern=wide)
    await ended(client, question)
    _, events = await client.turn("head anything")
    assert [item.rule_id for item in decisions(events)] == [approved.override_id]
    await revoke(client, approved.override_id)


async def test_a_permission_ends_by_itself(client: Client) -> None:
    """After its time an override permits nothing and is listed only when what ended is asked for."""
    question = await asked(client, "brief one")
    for seconds in (0.0, 0.5):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await always(client, question.approvals[0], seconds=seconds)
        assert info_of(caught.value).reason == "FIELD_INVALID"
    request = approval_pb2.ResolveApprovalRequest(
        approval_id=question.approvals[0],
        answer=approval_pb2.ANSWER_APPROVE_ALWAYS,
        digest=(await shown(client, question.approvals[0])).digest,
        override_expires_in=Duration(seconds=1),
    )
    answer = await client.approvals.ResolveApproval(request, metadata=client.metadata, timeout=DEADLINE)
    override = answer.approval.override_id
    async with asyncio.timeout(DEADLINE):
        while override in await listed(client, ended=False):  # noqa: ASYNC110 - time has no event
            await asyncio.sleep(0.05)
    assert override in await listed(client, ended=True)
    late = await asked(client, "brief two")
    await client.resolve(late.approvals[0], approve=False)


async def listed(client: Client, *, ended: bool) -> set[str]:
    """Ids of all overrides, page by page."""
    found: set[str] = set()
    token = ""
    while True:
        request = policy_pb2.ListOverridesRequest(include_ended=ended, page_size=1, page_token=token)
        page = await client.policy.ListOverrides(request, metadata=client.metadata, timeout=DEADLINE)
        found |= {item.override_id for item in page.overrides}
        token = page.next_page_token
        if not token:
            return found


async def test_a_permission_that_ends_before_its_call_begins_is_asked_about(client: Client) -> None:
    """A call that an override permitted, and that has not begun when it is revoked, becomes a question."""
    question = await asked(client, "revoked")
    override = (await always(client, question.approvals[0])).override_id
    await ended(client, question)
    waiting = await asked(client, "between")
    assert [item.rule_id for item in decisions(await client.events(waiting.conversation))][1] == override
    await revoke(client, override)
    await client.resolve(waiting.approvals[0], approve=True)
    asked_again = (
        await client.until(waiting.conversation, "approval_requested", await last(client, waiting))
    )[-1]
    await client.resolve(asked_again.approval_requested.approval_id, approve=False)
    assert states(await ended(client, waiting)) == ["SUCCEEDED", "DENIED", "COMPLETED"]


async def last(client: Client, question: Asked) -> int:
    """Sequence of the first question."""
    events = await client.events(question.conversation)
    return next(event.sequence for event in events if event.HasField("approval_requested"))
