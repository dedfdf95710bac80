"""Approvals over the wire: what is answered, by whom, once, and what a cancelled turn leaves behind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import grpc.aio
import psutil
import pytest
from grpc import StatusCode

from tests.support import configs
from tests.support.client import DEADLINE, Client, connected, finished, info_of, kinds
from tests.support.gateway import RunningGateway, serving
from tests.support.questions import Asked, asked, ended, refused, shown, states
from tyrum.approval.v1 import approval_pb2
from tyrum.chat.v1 import chat_pb2, event_pb2

GRACE = 0.5
MARGIN = 5.0
"""For a busy machine; the product promises the grace."""

SCRIPT = """\
version: 1
scenarios:
  - user: ask
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [tee, -a, asked], stdin: "x\\n"}}
      - deltas: ["Answered."]
  - user: denied
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [tee, -a, denied], stdin: "x\\n"}}
      - expect: {contains: ["over my dead body"]}
        deltas: ["Understood."]
  - user: two
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [tee, -a, first], stdin: "x\\n"}}
          - {tool: process.run, arguments: {argv: [tee, -a, second], stdin: "x\\n"}}
      - deltas: ["Both."]
  - user: changing
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [changing]}}
      - deltas: ["Changed."]
  - user: stubborn
    steps:
      - calls:
          - {tool: process.run, arguments: {shell: "trap '' TERM; echo $$ >stubborn; sleep 61; sleep 62"}}
      - deltas: ["Never said."]
  - user: {prefix: ""}
    steps:
      - deltas: ["Said."]
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One gateway for this file; no rule allows anything."""
    directory = tmp_path_factory.mktemp("approvals")
    (directory / "programs").mkdir()
    profile = f"path: [{directory}/programs, /usr/bin, /bin], kill_grace: {round(GRACE * 1000)}ms"
    config = configs.write(directory, script=SCRIPT, rules="      []", profile=profile)
    with serving(directory, config) as running:
        yield running


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[Client]:
    """The operator."""
    async with connected(gateway) as connection:
        yield connection


async def eventually(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Poll until something holds."""
    try:
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110 - processes and files have no event
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(what) from None


async def test_an_approved_call_runs_once_in_the_approvers_name(
    gateway: RunningGateway, client: Client
) -> None:
    """Nothing runs before the answer; then it runs once, and the transcript says who answered and how."""
    before = configs.count(gateway.state_dir, "asked")
    question = await asked(client, "ask")
    assert configs.count(gateway.state_dir, "asked") == before
    await client.resolve(question.approvals[0], approve=True, reason="go ahead")
    events = await ended(client, question)
    assert states(events) == ["SUCCEEDED", "COMPLETED"]
    assert configs.count(gateway.state_dir, "asked") == before + 1
    (resolved,) = [event.approval_resolved for event in events if event.HasField("approval_resolved")]
    assert (resolved.resolved_by, resolved.method, resolved.reason) == ("operator", "token", "go ahead")


async def test_a_denial_and_its_reason_reach_the_model(gateway: RunningGateway, client: Client) -> None:
    """A denied call never runs, and the next prompt holds the human's reason."""
    question = await asked(client, "denied")
    await client.resolve(question.approvals[0], approve=False, reason="over my dead body")
    events = await ended(client, question)
    assert states(events) == ["DENIED", "COMPLETED"], "the model's script expects the reason in its prompt"
    assert configs.count(gateway.state_dir, "denied") == 0


async def test_an_answer_counts_once_and_only_for_what_was_shown(client: Client) -> None:
    """A wrong digest changes nothing; the same answer again is the same; another one is told it is late."""
    question = await asked(client, "ask")
    (approval,) = question.approvals
    digest = (await shown(client, approval)).digest
    wrong = "sha256:" + "0" * 64
    conflict = (StatusCode.ABORTED, "VERSION_CONFLICT")
    assert await refused(client, approval, approval_pb2.ANSWER_APPROVE, wrong) == conflict
    assert await refused(client, approval, approval_pb2.ANSWER_DENY, wrong) == conflict
    assert (await shown(client, approval)).outcome == event_pb2.APPROVAL_OUTCOME_UNSPECIFIED
    first = await client.resolve(approval, approve=True)
    again = await client.resolve(approval, approve=True)
    assert first == again
    late = (StatusCode.FAILED_PRECONDITION, "ALREADY_RESOLVED")
    assert await refused(client, approval, approval_pb2.ANSWER_DENY, digest) == late
    events = await ended(client, question)
    assert await client.resolve(approval, approve=True) == first, "also after the turn has ended"
    assert kinds(events).count("approval_resolved") == 1
    assert states(events) == ["SUCCEEDED", "COMPLETED"]


async def test_of_answers_at_once_one_stands(gateway: RunningGateway, client: Client) -> None:
    """Approving and denying at the same moment leaves one outcome, and the call follows it."""
    for _ in range(5):
        before = configs.count(gateway.state_dir, "asked")
        question = await asked(client, "ask")
        (approval,) = question.approvals
        answers = await asyncio.gather(
            *(client.resolve(approval, approve=approve) for approve in (True, False) * 4),
            return_exceptions=True,
        )
        outcomes = {
            answer.outcome if isinstance(answer, approval_pb2.Approval) else info_of(answer).reason
            for answer in answers
            if isinstance(answer, approval_pb2.Approval | grpc.aio.AioRpcError)
        }
        assert len(outcomes) == 2
        assert "ALREADY_RESOLVED" in outcomes
        events = await ended(client, question)
        approved = event_pb2.APPROVAL_OUTCOME_APPROVED in outcomes
        assert states(events) == ["SUCCEEDED" if approved else "DENIED", "COMPLETED"]
        assert configs.count(gateway.state_dir, "asked") == before + approved
        assert kinds(events).count("approval_resolved") == 1


@pytest.mark.parametrize("together", [False, True])
async def test_two_questions_of_a_step_are_answered_in_any_order(
    gateway: RunningGateway, client: Client, *, together: bool
) -> None:
    """Answers in reverse order, or at the same moment, both count, and the calls run in the model's order."""
    before = [configs.count(gateway.state_dir, name) for name in ("first", "second")]
    question = await asked(client, "two", 2)
    later, earlier = question.approvals[1], question.approvals[0]
    if together:
        await asyncio.gather(*(client.resolve(one, approve=True) for one in (later, earlier)))
    else:
        await client.resolve(later, approve=True)
        turn = await client.chat.GetTurn(
            chat_pb2.GetTurnRequest(turn_id=question.turn), metadata=client.metadata, timeout=DEADLINE
        )
        assert turn.turn.state == event_pb2.TURN_STATE_WAITING_APPROVAL
        await client.resolve(earlier, approve=True)
    events = await ended(client, question)
    assert states(events) == ["SUCCEEDED", "SUCCEEDED", "COMPLETED"]
    proposed = [event.tool_call_proposed.call_id for event in events if event.HasField("tool_call_proposed")]
    assert [call.call_id for call in finished(events)] == proposed
    assert [configs.count(gateway.state_dir, name) for name in ("first", "second")] == [
        count + 1 for count in before
    ]


async def test_one_of_two_denied_leaves_the_other_alone(gateway: RunningGateway, client: Client) -> None:
    """A denial does not cascade: the other call of the step runs when it is approved."""
    before = [configs.count(gateway.state_dir, name) for name in ("first", "second")]
    question = await asked(client, "two", 2)
    await client.resolve(question.approvals[0], approve=False)
    await client.resolve(question.approvals[1], approve=True)
    events = await ended(client, question)
    assert states(events) == ["DENIED", "SUCCEEDED", "COMPLETED"]
    assert [configs.count(gateway.state_dir, name) for name in ("first", "second")] == [
        before[0],
        before[1] + 1,
    ]


async def test_a_program_that_changed_since_it_was_shown_is_asked_about_again(
    gateway: RunningGateway, client: Client
) -> None:
    """Approving what is no longer there supersedes the question and asks a new one with another digest."""
    program = gateway.state_dir.parent / "programs/changing"
    ran = gateway.state_dir / "workspaces/default/changed"
    program.write_text("#!/bin/sh\necho one >>changed\n")
    program.chmod(0o755)
    question = await asked(client, "changing")
    first = await shown(client, question.approvals[0])
    program.write_text("#!/bin/sh\necho two >>changed\n")
    await client.resolve(first.approval_id, approve=True)
    again = await client.until(
        question.conversation, "approval_requested", after=await last(client, question)
    )
    second = await shown(client, again[-1].approval_requested.approval_id)
    assert not ran.exists(), "what was approved is gone, what is there was not approved"
    assert second.approval_id != first.approval_id
    assert second.digest != first.digest
    assert (await shown(client, first.approval_id)).outcome in {
        event_pb2.APPROVAL_OUTCOME_APPROVED,
        event_pb2.APPROVAL_OUTCOME_SUPERSEDED,
    }
    assert await refused(client, second.approval_id, approval_pb2.ANSWER_APPROVE, first.digest) == (
        StatusCode.ABORTED,
        "VERSION_CONFLICT",
    )
    await client.resolve(second.approval_id, approve=True)
    events = await ended(client, question)
    assert states(events) == ["SUCCEEDED", "COMPLETED"]
    assert ran.read_text() == "two\n"


async def last(client: Client, question: Asked) -> int:
    """Sequence of the first question."""
    events = await client.events(question.conversation)
    return next(event.sequence for event in events if event.HasField("approval_requested"))


async def test_cancelling_settles_call_and_question_at_once(gateway: RunningGateway, client: Client) -> None:
    """A cancelled turn has no open call and no open question, and the question takes no answer any more."""
    before = configs.count(gateway.state_dir, "asked")
    question = await asked(client, "ask")
    (approval,) = question.approvals
    digest = (await shown(client, approval)).digest
    cancelled = await client.chat.CancelTurn(
        chat_pb2.CancelTurnRequest(turn_id=question.turn, reason="changed my mind"),
        metadata=client.metadata,
        timeout=DEADLINE,
    )
    assert cancelled.turn.state == event_pb2.TURN_STATE_CANCELLED
    events = await client.events(question.conversation)
    assert states(events) == ["CANCELLED", "CANCELLED"]
    assert (await shown(client, approval)).outcome == event_pb2.APPROVAL_OUTCOME_CANCELLED
    late = (StatusCode.FAILED_PRECONDITION, "ALREADY_RESOLVED")
    for answer in (approval_pb2.ANSWER_APPROVE, approval_pb2.ANSWER_DENY):
        assert await refused(client, approval, answer, digest) == late
    listed = await client.approvals.ListApprovals(
        approval_pb2.ListApprovalsRequest(conversation_id=question.conversation),
        metadata=client.metadata,
        timeout=DEADLINE,
    )
    assert not listed.approvals
    assert configs.count(gateway.state_dir, "asked") == before
    _, after = await next_turn(client, question.conversation)
    assert states(after) == ["COMPLETED"], "the conversation goes on"


async def next_turn(client: Client, conversation: str) -> tuple[chat_pb2.Accepted, list[event_pb2.Event]]:
    """Send another message to a conversation."""
    return await client.turn("anything", conversation)


async def test_cancelling_ends_a_running_command_within_its_grace(
    gateway: RunningGateway, client: Client
) -> None:
    """The turn is settled at once; a command that ignores SIGTERM is gone when its grace is over."""
    noted = gateway.state_dir / "workspaces/default/stubborn"
    question = await asked(client, "stubborn")
    await client.resolve(question.approvals[0], approve=True)
    await eventually(lambda: noted.exists() and noted.read_text() != "", 20, "the command never ran")
    pid = int(noted.read_text())
    tree = [psutil.Process(pid)]
    await eventually(lambda: bool(tree[0].children()), 10, "it has no child yet")
    tree += tree[0].children(recursive=True)
    cancelled = await client.chat.CancelTurn(
        chat_pb2.CancelTurnRequest(turn_id=question.turn), metadata=client.metadata, timeout=DEADLINE
    )
    assert cancelled.turn.state == event_pb2.TURN_STATE_CANCELLED
    assert states(await client.events(question.conversation)) == ["CANCELLED", "CANCELLED"]
    await eventually(
        lambda: not any(process.is_running() for process in tree), GRACE + MARGIN, "the command still runs"
    )


async def test_a_question_nobody_answers_is_denied(tmp_path: Path) -> None:
    """After its expiry a question counts as denied, whether or not anybody is connected."""
    config = configs.write(tmp_path, script=SCRIPT, rules="      []", more="approvals: {expiry: 1s}")
    with serving(tmp_path, config) as gateway:
        async with connected(gateway) as client:
            question = await asked(client, "ask")
            events = await ended(client, question)
            assert states(events) == ["DENIED", "COMPLETED"]
            approval = await shown(client, question.approvals[0])
            assert approval.outcome == event_pb2.APPROVAL_OUTCOME_EXPIRED
            late = (StatusCode.FAILED_PRECONDITION, "ALREADY_RESOLVED")
            answer = approval_pb2.ANSWER_APPROVE
            assert await refused(client, approval.approval_id, answer, approval.digest) == late
            assert configs.count(gateway.state_dir, "asked") == 0


async def test_the_seventeenth_message_of_a_conversation_waits_outside(client: Client) -> None:
    """16 unfinished turns are taken, the next is told to wait and leaves no trace; a freed place is taken."""
    question = await asked(client, "ask")
    waiting = []
    for _ in range(15):
        stream = client.send("anything", question.conversation)
        waiting.append((await anext(stream)).accepted)
        await stream.aclose()
    length = len(await client.events(question.conversation))
    for _ in range(2):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(client.send("one too many", question.conversation))
        assert caught.value.code() is StatusCode.RESOURCE_EXHAUSTED
        assert info_of(caught.value).reason == "QUOTA"
    assert len(await client.events(question.conversation)) == length
    await client.chat.CancelTurn(
        chat_pb2.CancelTurnRequest(turn_id=waiting[-1].turn_id), metadata=client.metadata, timeout=DEADLINE
    )
    stream = client.send("again", question.conversation)
    assert (await anext(stream)).accepted.turn_id
    await client.resolve(question.approvals[0], approve=False)
    rest = [item async for item in stream]
    assert rest[-1].event.turn_finished.state == event_pb2.TURN_STATE_COMPLETED


async def test_a_request_id_names_one_message(client: Client) -> None:
    """Sent again, also many times at once, a message joins its turn; with another text it is refused."""
    sends = [client.send("anything", request_id="the-same") for _ in range(8)]
    first = await asyncio.gather(*(anext(stream) for stream in sends))
    (accepted,) = {item.accepted.SerializeToString() for item in first}
    joined = chat_pb2.Accepted.FromString(accepted)
    for stream in sends:
        items = [item async for item in stream]
        assert items[-1].event.turn_finished.state == event_pb2.TURN_STATE_COMPLETED
        durable = [item.event.sequence for item in items if item.HasField("event")]
        assert durable == sorted(set(durable))
    for text, conversation in (("another", ""), ("anything", joined.conversation_id)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(client.send(text, conversation, request_id="the-same"))
        assert caught.value.code() is StatusCode.ALREADY_EXISTS
        assert info_of(caught.value).reason == "REQUEST_ID_REUSED"
    assert kinds(await client.events(joined.conversation_id)).count("user_message") == 1
