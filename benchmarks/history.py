"""Conversations with a long past, written through the store before a gateway starts."""

from datetime import UTC, datetime
from pathlib import Path

from tyrum_gateway.bootstrap.system import RandomIds
from tyrum_gateway.domain.checkpoint import Checkpoint
from tyrum_gateway.domain.commit import Acceptance, Commit
from tyrum_gateway.domain.ids import ConversationId, PrincipalId, TurnId
from tyrum_gateway.domain.principal import Role
from tyrum_gateway.domain.states import TurnState
from tyrum_gateway.domain.transcript import AssistantMessage, TurnFinished
from tyrum_gateway.domain.turn import Turn
from tyrum_gateway.storage import SqliteStore

PER_TURN = 100
SAID = "an earlier answer"
LATE = 3
"""Last turns, in which every message is short: more than a prompt looks back."""


async def write(database: Path, events: int, token_sha256: str, early: str = SAID) -> str:
    """Create a conversation of the operator with about `events` events; return its id.

    Args:
        database: The store's file.
        events: How many.
        token_sha256: Of the operator's token.
        early: Text of the messages of all but the last turns.
    """
    ids, now = RandomIds(), datetime.now(UTC)
    store = await SqliteStore.open(database)
    try:
        roles = [role.value for role in Role]
        owner = await store.ensure_principal(ids.new(PrincipalId), "operator", roles, token_sha256, now)
        conversation = ids.new(ConversationId)
        turns = max(events // PER_TURN, 1)
        for number in range(turns):
            turn = Turn(ids.new(TurnId), conversation, owner, TurnState.QUEUED, now)
            accepted = await store.accept(
                Acceptance(turn, number == 0, "earlier", f"{conversation}-{number}", "history", 16, 256, ())
            )
            text = early if number < turns - LATE else SAID
            said = tuple(AssistantMessage(step, 1, text) for step in range(1, PER_TURN - 1))
            rested = Turn(
                turn_id=accepted.turn.turn_id,
                conversation_id=conversation,
                principal_id=owner,
                state=TurnState.COMPLETED,
                created_at=now,
                number=accepted.turn.number,
                version=accepted.turn.version,
            )
            finished = TurnFinished(TurnState.COMPLETED)
            await store.commit(
                Commit(
                    rested,
                    now,
                    events=(*(said if events else ()), finished),
                    checkpoint=Checkpoint(accepted.turn.number, "earlier turns"),
                )
            )
        return conversation
    finally:
        await store.close()
