"""Reading the audit log of an open store. Invariant: by number, or by the index over subjects; bounded."""

from collections.abc import Sequence

from sqlalchemy import bindparam, select
from sqlalchemy.sql.elements import BindParameter

from tyrum_gateway.domain.audit import AuditLog, AuditRow
from tyrum_gateway.storage.reads import Reads
from tyrum_gateway.storage.statements import AUDIT_HEAD, compiled
from tyrum_gateway.storage.tables import audit

_size: BindParameter[int] = bindparam("size")
_after = select(audit).where(audit.c.sequence > bindparam("after")).order_by(audit.c.sequence).limit(_size)
_before = (
    select(audit).where(audit.c.sequence < bindparam("before")).order_by(audit.c.sequence.desc()).limit(_size)
)
_about = audit.c.subject == bindparam("about")

AUDIT_HASH = compiled(select(audit.c.hash).where(audit.c.sequence == bindparam("number")))
AUDIT_AFTER = compiled(_after)
AUDIT_AFTER_OF = compiled(_after.where(_about))
AUDIT_BEFORE = compiled(_before)
AUDIT_BEFORE_OF = compiled(_before.where(_about))


class SqliteAuditLog(AuditLog):
    """Implements `AuditLog`."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def head(self) -> tuple[int, str] | None:
        """See `AuditLog.head`."""
        (found,) = await self._reads.fetch((AUDIT_HEAD, {}))
        return (found[0]["sequence"], found[0]["hash"]) if found else None

    async def hash_of(self, sequence: int) -> str | None:
        """See `AuditLog.hash_of`."""
        (found,) = await self._reads.fetch((AUDIT_HASH, {"number": sequence}))
        return found[0]["hash"] if found else None

    async def rows(self, after: int, limit: int, *, subject: str = "") -> Sequence[AuditRow]:
        """See `AuditLog.rows`."""
        statement = AUDIT_AFTER_OF if subject else AUDIT_AFTER
        (found,) = await self._reads.fetch((statement, {"after": after, "size": limit, "about": subject}))
        return [AuditRow(*row) for row in found]

    async def rows_before(self, before: int, limit: int, *, subject: str = "") -> Sequence[AuditRow]:
        """See `AuditLog.rows_before`."""
        statement = AUDIT_BEFORE_OF if subject else AUDIT_BEFORE
        (found,) = await self._reads.fetch((statement, {"before": before, "size": limit, "about": subject}))
        return [AuditRow(*row) for row in found]
