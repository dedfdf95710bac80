"""Ending a turn whose rows cannot be read, without reading them.

Invariant: what is changed is named by keys alone, and the end is told like any other: an event, an audit row.
"""

from datetime import datetime
from typing import Final

from sqlalchemy import bindparam, literal_column, select

from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.ids import ConversationId
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.transcript import TurnFinished
from tyrum_gateway.storage.codec import encode
from tyrum_gateway.storage.inserts import EVENTS
from tyrum_gateway.storage.statements import TAKE_SEQUENCES, compiled
from tyrum_gateway.storage.tables import approvals, calls, turns
from tyrum_gateway.storage.times import to_microseconds
from tyrum_gateway.storage.transaction import Transaction

_KERNEL: Final = "kernel"
_FINAL_CALLS: Final = tuple(state.value for state in CallState if state.final)

_OLDEST = compiled(
    select(turns.c.turn_id, turns.c.number)
    .where(turns.c.conversation_id == bindparam("conversation"), turns.c.ended_at.is_(None))
    .order_by(turns.c.number)
    .limit(literal_column("1"))
)
_END = compiled(
    turns.update()
    .where(turns.c.turn_id == bindparam("turn"))
    .values(
        state=bindparam("new_state"),
        reason=bindparam("new_reason"),
        ended_at=bindparam("at"),
        changed_at=bindparam("at"),
        version=turns.c.version + literal_column("1"),
    )
)
_END_CALLS = compiled(
    calls.update()
    .where(
        calls.c.turn_id == bindparam("turn"),
        calls.c.state.not_in([literal_column(f"'{state}'") for state in _FINAL_CALLS]),
    )
    .values(state=bindparam("new_state"))
)
_END_APPROVALS = compiled(
    approvals.update()
    .where(approvals.c.turn_id == bindparam("turn"), approvals.c.outcome.is_(None))
    .values(outcome=bindparam("new_outcome"), resolved_at=bindparam("at"), resolved_reason=bindparam("why"))
)


def abandon(transaction: Transaction, conversation_id: ConversationId, reason: str, at: datetime) -> bool:
    """Fail the oldest unfinished turn of a conversation; False when it has none.

    How far a call of it came is unknown.
    """
    found = transaction.run(_OLDEST, {"conversation": conversation_id}).fetchone()
    if found is None:
        return False
    turn, moment = found["turn_id"], to_microseconds(at)
    transaction.run(
        _END, {"turn": turn, "new_state": TurnState.FAILED.value, "new_reason": reason, "at": moment}
    )
    transaction.run(_END_CALLS, {"turn": turn, "new_state": CallState.OUTCOME_UNKNOWN.value})
    transaction.run(_END_APPROVALS, {"turn": turn, "new_outcome": "cancelled", "at": moment, "why": reason})
    taken = transaction.run(
        TAKE_SEQUENCES, {"conversation": conversation_id, "count": 1, "at": moment}
    ).fetchone()
    kind, payload = encode(TurnFinished(TurnState.FAILED, reason))
    transaction.insert(
        EVENTS,
        [
            {
                "conversation_id": conversation_id,
                "sequence": taken["last_sequence"],
                "turn_number": found["number"],
                "turn_id": turn,
                "kind": kind,
                "payload": payload,
                "evidence_call_id": None,
                "created_at": moment,
            }
        ],
    )
    details = {"state": TurnState.FAILED.value, "reason": reason, "turn": turn}
    transaction.audit([AuditEntry("turn.ended", _KERNEL, turn, details)], at)
    return True
