"""Many turns that wait for an approval, written by the store before a gateway starts.

They are copies of one real question, made by the kernel's own transitions: each can be answered, and runs.
"""

import asyncio
import secrets
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from tyrum_gateway.app.fold import fold
from tyrum_gateway.domain.approval import Approval
from tyrum_gateway.domain.commit import Acceptance
from tyrum_gateway.domain.ids import ApprovalId, CallId, ConversationId, EntityId, TurnId
from tyrum_gateway.domain.policy import Decision, Verdict
from tyrum_gateway.domain.states import TurnState
from tyrum_gateway.domain.turn import Turn, TurnLimits
from tyrum_gateway.domain.turn_events import Claimed, ProposedCall, StepGenerated
from tyrum_gateway.domain.turn_machine import advance
from tyrum_gateway.storage import SqliteStore

PERMITTED = "limits: {unfinished_turns_per_principal: 100000}"
"""For the configuration of a gateway that is sent messages while so many turns of one principal wait."""

_TOGETHER = 64
_LIMITS = TurnLimits(steps=8, attempts=3)

Id = TypeVar("Id", bound=EntityId)


async def write(database: Path, number: int, *, like: str, text: str, lasts: timedelta) -> list[str]:
    """Write so many waiting turns, each in a conversation of its own.

    Args:
        database: Of a gateway that does not run.
        number: How many.
        like: Id of the approval that is copied; its turn must still wait.
        text: The message that asks.
        lasts: Until the questions expire; may be negative.

    Returns:
        The ids of the approvals.
    """
    async with await SqliteStore.open(database) as store:
        model = await store.approval(ApprovalId(like))
        arguments = (await store.turn(model.turn_id)).turn.calls[0].arguments
        written: list[str] = []
        for begun in range(0, number, _TOGETHER):
            many = range(begun, min(begun + _TOGETHER, number))
            written += await asyncio.gather(*(_ask(store, model, arguments, text, lasts) for _ in many))
        return written


async def _ask(store: SqliteStore, model: Approval, arguments: str, text: str, lasts: timedelta) -> str:
    now = datetime.now(UTC)
    opened = Turn(_new(TurnId), _new(ConversationId), model.requested_by, TurnState.QUEUED, now)
    accepted = await store.accept(Acceptance(opened, True, text, opened.turn_id, text, 16, 1_000_000, ()))
    approval = replace(
        model,
        approval_id=_new(ApprovalId),
        conversation_id=opened.conversation_id,
        turn_id=opened.turn_id,
        call_id=_new(CallId),
        created_at=now,
        expires_at=now + lasts,
    )
    asks = Verdict(Decision.REQUIRE_APPROVAL, model.rule_id, "", "sha256:0", model.target)
    proposed = ProposedCall(approval.call_id, model.tool, arguments, asks, "", approval)
    claimed = advance(accepted.turn, Claimed(now), _LIMITS)
    asked = advance(claimed.turn, StepGenerated(1, 1, "", (proposed,)), _LIMITS)
    await store.commit(fold(asked.turn, (*claimed.effects, *asked.effects), at=now))
    return str(approval.approval_id)


def _new(kind: type[Id]) -> Id:
    return kind.build(time.time_ns() // 1_000_000, secrets.token_bytes(10))
