"""Standing permissions in the database: written with the answer that creates them, ended once, kept."""

import functools
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import bindparam, select
from sqlalchemy.sql.elements import BindParameter

from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.errors import NotFound
from tyrum_gateway.domain.ids import OverrideId
from tyrum_gateway.domain.override import Override
from tyrum_gateway.domain.ports import OverrideStore
from tyrum_gateway.storage.override_rows import read
from tyrum_gateway.storage.reads import Reads
from tyrum_gateway.storage.statements import compiled
from tyrum_gateway.storage.tables import overrides
from tyrum_gateway.storage.times import to_microseconds
from tyrum_gateway.storage.transaction import Transaction
from tyrum_gateway.storage.writer import Writer

_size: BindParameter[int] = bindparam("size")
_in_force = overrides.c.revoked_at.is_(None)
_ordered = select(overrides).order_by(overrides.c.override_id.desc()).limit(_size)

REVOKE = compiled(
    overrides.update()
    .where(overrides.c.override_id == bindparam("override"), _in_force)
    .values({name: bindparam(f"new_{name}") for name in ("revoked_at", "revoked_by", "revoked_reason")})
)
ONE = compiled(select(overrides).where(overrides.c.override_id == bindparam("override")))
OF_AGENT = compiled(
    _ordered.where(
        overrides.c.agent == bindparam("agent"),
        _in_force,
        overrides.c.expires_at.is_(None) | (overrides.c.expires_at > bindparam("now")),
    )
)
NEWEST = compiled(_ordered)
BEFORE = compiled(_ordered.where(overrides.c.override_id < bindparam("before")))


class SqliteOverrides(OverrideStore):
    """Implements `OverrideStore`."""

    def __init__(self, writer: Writer, reads: Reads) -> None:
        self._writer = writer
        self._reads = reads

    async def of_agent(self, agent: str, now: datetime, limit: int) -> Sequence[Override]:
        """See `OverrideStore.of_agent`."""
        values = {"agent": agent, "now": to_microseconds(now), "size": limit}
        (found,) = await self._reads.fetch((OF_AGENT, values))
        return [read(row) for row in found]

    async def get(self, override_id: OverrideId) -> Override:
        """See `OverrideStore.get`."""
        (found,) = await self._reads.fetch((ONE, {"override": override_id}))
        if not found:
            raise NotFound("override", override_id)
        return read(found[0])

    async def page(self, before: OverrideId | None, limit: int) -> Sequence[Override]:
        """See `OverrideStore.page`."""
        query = (BEFORE, {"before": before, "size": limit}) if before else (NEWEST, {"size": limit})
        (found,) = await self._reads.fetch(query)
        return [read(row) for row in found]

    async def revoke(self, override: Override, audit: AuditEntry) -> Override:
        """See `OverrideStore.revoke`."""
        return await self._writer.run(functools.partial(_revoke, override=override, audit=audit))


def _revoke(transaction: Transaction, *, override: Override, audit: AuditEntry) -> Override:
    revocation = override.revocation
    if revocation is not None:
        values = {
            "override": override.override_id,
            "new_revoked_at": to_microseconds(revocation.at),
            "new_revoked_by": revocation.by,
            "new_revoked_reason": revocation.reason,
        }
        if transaction.run(REVOKE, values).rowcount == 1:
            transaction.audit((audit,), revocation.at)
    found = transaction.run(ONE, {"override": override.override_id}).fetchone()
    if found is None:
        raise NotFound("override", override.override_id)
    return read(found)
