"""Values and steps that the tests of the store share."""

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from tyrum_gateway.domain import transcript
from tyrum_gateway.domain.approval import Approval, Outcome, Resolution, Subject
from tyrum_gateway.domain.binding import Binding, Candidate
from tyrum_gateway.domain.commit import Acceptance, AuditEntry, Commit, Evidence
from tyrum_gateway.domain.ids import (
    ApprovalId,
    BindingId,
    CallId,
    ConversationId,
    EntityId,
    OperationId,
    PrincipalId,
    ProcessId,
    TurnId,
)
from tyrum_gateway.domain.process import EndCause, ProcessResult, StreamEvidence
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.turn import Call, Turn
from tyrum_gateway.storage import SqliteStore
from tyrum_gateway.storage.transaction import Transaction

Id = TypeVar("Id", bound=EntityId)

PRINCIPAL = PrincipalId.build(1, b"principal0")


def new(kind: type[Id]) -> Id:
    """Make a fresh identifier."""
    return kind.build(time.time_ns() // 1_000_000, secrets.token_bytes(10))


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def message(
    *,
    text: str = "hello",
    request_id: str | None = None,
    conversation_id: ConversationId | None = None,
    max_queued: int = 16,
    max_unfinished: int = 1000,
    principal_id: PrincipalId = PRINCIPAL,
) -> Acceptance:
    """Make a message, in a new conversation unless one is given."""
    turn = Turn(new(TurnId), conversation_id or new(ConversationId), principal_id, TurnState.QUEUED, now())
    return Acceptance(
        turn=turn,
        opens_conversation=conversation_id is None,
        text=text,
        request_id=request_id or secrets.token_hex(8),
        title="a title",
        max_queued=max_queued,
        max_unfinished=max_unfinished,
        audit=(AuditEntry("turn.accepted", principal_id, turn.turn_id, {"length": len(text)}),),
    )


async def running(store: SqliteStore, conversation_id: ConversationId | None = None) -> Turn:
    """Accept a message and claim its turn."""
    accepted = await store.accept(message(conversation_id=conversation_id))
    turn, *_ = await store.commit(claim(accepted.turn))
    return turn


def claim(turn: Turn) -> Commit:
    """Begin a turn."""
    return Commit(replace(turn, state=TurnState.RUNNING, step=1, attempt=1), now())


def say(turn: Turn, *texts: str) -> Commit:
    """Record texts."""
    return Commit(
        turn, now(), tuple(transcript.AssistantMessage(turn.step, turn.attempt, text) for text in texts)
    )


def finish(turn: Turn) -> Commit:
    """Complete a turn."""
    done = replace(turn, state=TurnState.COMPLETED, calls=())
    return Commit(done, now(), (transcript.TurnFinished(TurnState.COMPLETED),))


def call(turn: Turn, state: CallState, index: int = 0) -> Call:
    """Make a call of the turn's step."""
    return Call(new(CallId), turn.turn_id, turn.step, index, "process.run", '{"argv":["ls"]}', state, "rule")


def begin(turn: Turn, proposed: Call) -> Commit:
    """Bind and begin a call."""
    candidate = Candidate(
        kind="isolation",
        provider="local",
        provider_id="tyrum.local-spawn",
        profile="trusted",
        contract_major=1,
        contract_minor=2,
        contract_digest="sha256:c",
        implementation_version="0.1.0",
        artifact_digest="sha256:a",
        config_digest="sha256:f",
        instance_id="inst_1",
        claims=("fs.read=NOT_ENFORCED",),
        journal_id="jrnl_of_this_provider",
    )
    begun = replace(
        proposed,
        state=CallState.EXECUTING,
        operation_id=new(OperationId),
        process_id=new(ProcessId),
        binding_id=new(BindingId),
    )
    assert begun.operation_id is not None
    assert begun.binding_id is not None
    started = transcript.ToolCallStarted(
        begun.call_id, begun.operation_id, begun.binding_id, begun.process_id
    )
    return Commit(
        replace(turn, calls=(begun,)),
        now(),
        (started,),
        calls=(begun,),
        bindings=(Binding(begun.binding_id, begun.operation_id, candidate),),
    )


def end(turn: Turn, content: str) -> Commit:
    """End the turn's first call."""
    ended = replace(turn.calls[0], state=CallState.SUCCEEDED)
    stream = StreamEvidence(3, "0" * 64, b"out", b"")
    result = ProcessResult(EndCause.EXITED, 0, None, timedelta(milliseconds=12), stream, stream)
    return Commit(
        replace(turn, step=turn.step + 1, calls=()),
        now(),
        (transcript.ToolCallFinished(ended.call_id, ended.state, content),),
        calls=(ended,),
        evidence=(Evidence(ended.call_id, content, result),),
    )


def question(turn: Turn, waiting: Call, *, lasts: timedelta = timedelta(hours=1)) -> Approval:
    """Make a question about a call."""
    return Approval(
        approval_id=new(ApprovalId),
        conversation_id=turn.conversation_id,
        turn_id=turn.turn_id,
        call_id=waiting.call_id,
        tool=waiting.tool,
        subject=Subject('{"argv":["ls"]}', "ls"),
        rule_id="rule",
        requested_by=turn.principal_id,
        created_at=now(),
        expires_at=now() + lasts,
    )


async def asked(store: SqliteStore, *, lasts: timedelta = timedelta(hours=1)) -> tuple[Turn, Approval]:
    """Bring a new turn to its first question."""
    turn = await running(store)
    waiting = call(turn, CallState.AWAITING_APPROVAL)
    approval = question(turn, waiting, lasts=lasts)
    waiting = replace(waiting, approval_id=approval.approval_id)
    asking = replace(turn, state=TurnState.WAITING_APPROVAL, calls=(waiting,))
    turn, *_ = await store.commit(Commit(asking, now(), calls=(waiting,), opened=(approval,)))
    return turn, approval


def resolved(approval: Approval, outcome: Outcome = Outcome.APPROVED, reason: str = "fine") -> Approval:
    """Answer a question."""
    return replace(approval, resolution=Resolution(outcome, now(), PRINCIPAL, "operator", "token", reason))


@asynccontextmanager
async def held_writer(store: SqliteStore) -> AsyncIterator[None]:
    """Keep the writing thread busy, so that what is handed over meanwhile becomes one group."""
    entered, release = threading.Event(), threading.Event()

    def hold(_: Transaction) -> None:
        entered.set()
        assert release.wait(30)

    holding = asyncio.create_task(store._writer.run(hold))
    try:
        assert await asyncio.to_thread(entered.wait, 30)
        yield
    finally:
        release.set()
        await holding
