"""How much waits, counted by the partial indexes of what waits."""

from dataclasses import dataclass

from sqlalchemy import func, select

from tyrum_gateway.storage.reads import Reads
from tyrum_gateway.storage.statements import compiled
from tyrum_gateway.storage.tables import approvals, turns

_PENDING = compiled(select(func.count().label("waiting")).where(approvals.c.outcome.is_(None)))
_UNFINISHED = compiled(select(func.count().label("waiting")).where(turns.c.ended_at.is_(None)))


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits."""

    pending: int
    """Approvals without an outcome."""
    unfinished: int
    """Turns without an end."""


async def backlog(reads: Reads) -> Backlog:
    """Count what waits."""
    pending, unfinished = await reads.fetch((_PENDING, {}), (_UNFINISHED, {}))
    return Backlog(pending[0]["waiting"], unfinished[0]["waiting"])
