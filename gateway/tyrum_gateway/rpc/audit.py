"""AuditService over the audit log: parse, page, convert; rows leave exactly as they are stored."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from tyrum.audit.v1 import audit_pb2, audit_pb2_grpc
from tyrum_gateway.domain.audit import AuditLog, AuditRow, SignedHead
from tyrum_gateway.domain.errors import InvalidRequest, NotFound, StateUnusable
from tyrum_gateway.domain.ids import PrincipalId
from tyrum_gateway.domain.principal import KERNEL
from tyrum_gateway.domain.principal_store import PrincipalStore
from tyrum_gateway.rpc import convert

LOOKED_AT = 5_000
"""Rows that one page looks at."""

_BATCH = 500
_LARGEST = (1 << 63) - 1
_LONGEST_FILTER = 128


class AuditServicer(audit_pb2_grpc.AuditServiceServicer):
    """Reading the audit log."""

    def __init__(
        self,
        audit: AuditLog,
        principals: PrincipalStore,
        *,
        heads: Callable[[], Iterable[SignedHead]],
        public_key: str,
    ) -> None:
        """Prepare.

        Args:
            audit: The log.
            principals: Names of those who act in it.
            heads: Reads all signed heads, oldest first; may block.
            public_key: In PEM.
        """
        self._audit = audit
        self._principals = principals
        self._heads = heads
        self._public_key = public_key

    async def ListAudit(  # noqa: N802 - named by the contract
        self, request: audit_pb2.ListAuditRequest, context: Any
    ) -> audit_pb2.ListAuditResponse:
        """Page through rows; the token is the number of the last row that was looked at."""
        page = await self._page(request)
        actors = {row.actor for row in page.rows} - {KERNEL}
        page.actor_names.update(await self._principals.names(actors))
        return page

    async def _page(self, request: audit_pb2.ListAuditRequest) -> audit_pb2.ListAuditResponse:
        size = convert.page_size(request.page_size, default=100, maximum=500)
        after = convert.sequence(request.after_sequence)
        subject = _filter("subject", request.subject)
        prefix = _filter("kind_prefix", request.kind_prefix)
        actor = await self._actor(_filter("actor", request.actor))
        newest_first = request.newest_first
        position = _position(request.page_token, _LARGEST if newest_first else after)
        picked: list[audit_pb2.AuditRow] = []
        looked_at = held = 0
        while looked_at < LOOKED_AT:
            if newest_first:
                rows = await self._audit.rows_before(position, _BATCH, subject=subject)
            else:
                rows = await self._audit.rows(max(position, after), _BATCH, subject=subject)
            for row in rows:
                if row.sequence <= after:
                    return audit_pb2.ListAuditResponse(rows=picked)
                if row.kind.startswith(prefix) and actor in {"", row.actor}:
                    written = _row(row)
                    held += written.ByteSize()
                    if picked and held > convert.MAX_PAGE:
                        return audit_pb2.ListAuditResponse(rows=picked, next_page_token=str(position))
                    picked.append(written)
                position, looked_at = row.sequence, looked_at + 1
                if len(picked) == size:
                    return audit_pb2.ListAuditResponse(rows=picked, next_page_token=str(position))
            if len(rows) < _BATCH:
                return audit_pb2.ListAuditResponse(rows=picked)
        return audit_pb2.ListAuditResponse(rows=picked, next_page_token=str(position))

    async def _actor(self, wanted: str) -> str:
        """Find whose rows are wanted: rows have ids, people know names."""
        if wanted in {"", KERNEL} or wanted.startswith(f"{PrincipalId.prefix}_"):
            return wanted
        try:
            return (await self._principals.account(wanted)).principal_id
        except NotFound:
            raise InvalidRequest("actor", f"must be `{KERNEL}`, or the name or id of a principal") from None

    async def ExportAudit(  # noqa: N802 - named by the contract
        self, request: audit_pb2.ExportAuditRequest, context: Any
    ) -> AsyncGenerator[audit_pb2.ExportAuditResponse, None]:
        """Stream all rows after a number."""
        # The whole log includes rows before the first, which somebody else has written.
        after = convert.sequence(request.after_sequence) or -_LARGEST - 1
        while rows := await self._audit.rows(after, _BATCH):
            left = list(rows)
            while left:
                written, _ = convert.page(left, len(left), _row)
                yield audit_pb2.ExportAuditResponse(rows=written)
                left = left[len(written) :]
            after = rows[-1].sequence

    async def ExportHeads(  # noqa: N802 - named by the contract
        self, request: audit_pb2.ExportHeadsRequest, context: Any
    ) -> AsyncGenerator[audit_pb2.ExportHeadsResponse, None]:
        """Stream the public key, then the heads."""
        yield audit_pb2.ExportHeadsResponse(public_key=self._public_key)
        heads = iter(self._heads())
        while batch := await asyncio.to_thread(_take, heads):
            yield audit_pb2.ExportHeadsResponse(heads=[_head(head) for head in batch])


def _take(heads: Iterable[SignedHead]) -> list[SignedHead]:
    try:
        return list(itertools.islice(heads, _BATCH))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StateUnusable("the audit heads cannot be read", problem=str(error)) from error


def _filter(field: str, text: str) -> str:
    if len(text.encode()) > _LONGEST_FILTER:
        raise InvalidRequest(field, f"must have at most {_LONGEST_FILTER} bytes")
    return text


def _position(token: str, beginning: int) -> int:
    if not token:
        return beginning
    if not (token.isascii() and token.isdecimal() and len(token) < 19):
        raise InvalidRequest("page_token", "must be the token of a page")
    return int(token)


def _row(row: AuditRow) -> audit_pb2.AuditRow:
    return audit_pb2.AuditRow(
        sequence=row.sequence,
        at=row.at,
        kind=row.kind,
        actor=row.actor,
        subject=row.subject,
        details=row.details,
        previous=row.previous,
        hash=row.hash,
    )


def _head(head: SignedHead) -> audit_pb2.SignedHead:
    return audit_pb2.SignedHead(
        sequence=head.sequence, hash=head.hash, at=head.at, key_id=head.key_id, signature=head.signature
    )
