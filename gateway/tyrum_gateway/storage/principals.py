"""The principal store port on the gateway's SQLite file."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, select

from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.errors import NotFound
from tyrum_gateway.domain.ids import PrincipalId, TokenId
from tyrum_gateway.domain.principal import Account, Role, Token
from tyrum_gateway.domain.principal_store import PrincipalStore
from tyrum_gateway.storage import principal_writes, rows
from tyrum_gateway.storage.principal_writes import ACCOUNT, TOKEN, usable_now
from tyrum_gateway.storage.reads import Reads
from tyrum_gateway.storage.statements import compiled
from tyrum_gateway.storage.tables import principals, tokens
from tyrum_gateway.storage.times import to_microseconds
from tyrum_gateway.storage.writer import Writer

_ACCOUNT_BY_NAME = compiled(select(principals).where(principals.c.name == bindparam("principal")))
_accounts = (
    select(principals)
    .where(principals.c.principal_id > bindparam("after"))
    .order_by(principals.c.principal_id)
    .limit(bindparam("size"))
)
_ACCOUNTS = compiled(_accounts)
_ACTIVE_ACCOUNTS = compiled(_accounts.where(principals.c.disabled_at.is_(None)))

_tokens = (
    select(tokens)
    .where(tokens.c.token_id > bindparam("after"))
    .order_by(tokens.c.token_id)
    .limit(bindparam("size"))
)
_owned = tokens.c.principal_id == bindparam("owner")
_TOKENS = compiled(_tokens)
_USABLE_TOKENS = compiled(_tokens.where(usable_now()))
_TOKENS_OF = compiled(_tokens.where(_owned))
_USABLE_TOKENS_OF = compiled(_tokens.where(_owned, usable_now()))


class SqlitePrincipals(PrincipalStore):
    """Implements `PrincipalStore` over the connections of a `SqliteStore`."""

    def __init__(self, writer: Writer, reads: Reads) -> None:
        self._writer = writer
        self._reads = reads

    async def create(self, account: Account, audit: AuditEntry) -> Account:
        """See `PrincipalStore.create`."""
        return await self._writer.run(
            functools.partial(principal_writes.create, account=account, audit=audit)
        )

    async def account(self, wanted: str) -> Account:
        """See `PrincipalStore.account`; a name never looks like an id."""
        named = not wanted.startswith(f"{PrincipalId.prefix}_")
        statement = _ACCOUNT_BY_NAME if named else ACCOUNT
        (found,) = await self._reads.fetch((statement, {"principal": wanted}))
        if not found:
            raise NotFound("principal", wanted)
        return rows.account(found[0])

    async def names(self, principals: Iterable[str]) -> Mapping[str, str]:
        """See `PrincipalStore.names`."""
        found = await self._reads.fetch(*((ACCOUNT, {"principal": wanted}) for wanted in principals))
        return {row["principal_id"]: row["name"] for one in found for row in one}

    async def accounts(
        self, *, after: PrincipalId | None, include_disabled: bool, limit: int
    ) -> Sequence[Account]:
        """See `PrincipalStore.accounts`."""
        statement = _ACCOUNTS if include_disabled else _ACTIVE_ACCOUNTS
        (found,) = await self._reads.fetch((statement, {"after": after or "", "size": limit}))
        return [rows.account(row) for row in found]

    async def set_roles(
        self, principal_id: PrincipalId, roles: frozenset[Role], now: datetime, audit: AuditEntry
    ) -> Account:
        """See `PrincipalStore.set_roles`."""
        return await self._writer.run(
            functools.partial(
                principal_writes.set_roles, principal_id=principal_id, roles=roles, now=now, audit=audit
            )
        )

    async def disable(self, principal_id: PrincipalId, now: datetime, audit: AuditEntry) -> Account:
        """See `PrincipalStore.disable`."""
        return await self._writer.run(
            functools.partial(principal_writes.disable, principal_id=principal_id, now=now, audit=audit)
        )

    async def issue(self, token: Token, digest: str, max_usable: int, audit: AuditEntry) -> Token:
        """See `PrincipalStore.issue`."""
        return await self._writer.run(
            functools.partial(
                principal_writes.issue, token=token, digest=digest, max_usable=max_usable, audit=audit
            )
        )

    async def token(self, token_id: TokenId) -> Token:
        """See `PrincipalStore.token`."""
        (found,) = await self._reads.fetch((TOKEN, {"wanted": token_id}))
        if not found:
            raise NotFound("token", token_id)
        return rows.token(found[0])

    async def tokens(
        self, *, owner: PrincipalId | None, after: TokenId | None, usable_at: datetime | None, limit: int
    ) -> Sequence[Token]:
        """See `PrincipalStore.tokens`."""
        parameters: dict[str, Any] = {"after": after or "", "size": limit}
        if usable_at is None:
            statement = _TOKENS if owner is None else _TOKENS_OF
        else:
            statement = _USABLE_TOKENS if owner is None else _USABLE_TOKENS_OF
            parameters["now"] = to_microseconds(usable_at)
        if owner is not None:
            parameters["owner"] = owner
        (found,) = await self._reads.fetch((statement, parameters))
        return [rows.token(row) for row in found]

    async def revoke(self, token_id: TokenId, now: datetime, audit: AuditEntry) -> Token:
        """See `PrincipalStore.revoke`."""
        return await self._writer.run(
            functools.partial(principal_writes.revoke, token_id=token_id, now=now, audit=audit)
        )
