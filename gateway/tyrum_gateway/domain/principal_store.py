"""The port behind identity: principals and tokens made durable, each change with its audit entry."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.ids import PrincipalId, TokenId
from tyrum_gateway.domain.principal import Account, Role, Token


class PrincipalStore(Protocol):
    """Principals and their tokens. A write is one commit; one that changes nothing records nothing."""

    async def create(self, account: Account, audit: AuditEntry) -> Account:
        """Add a principal.

        Raises:
            RequestIdReused: The name is taken.
        """
        ...

    async def account(self, wanted: str) -> Account:
        """Read a principal by name or id.

        Raises:
            NotFound: There is none.
        """
        ...

    async def names(self, principals: Iterable[str]) -> Mapping[str, str]:
        """Read the names of principals by id; what is no principal's id is left out."""
        ...

    async def accounts(
        self, *, after: PrincipalId | None, include_disabled: bool, limit: int
    ) -> Sequence[Account]:
        """List principals by id, beginning after `after`."""
        ...

    async def set_roles(
        self, principal_id: PrincipalId, roles: frozenset[Role], now: datetime, audit: AuditEntry
    ) -> Account:
        """Replace a principal's roles.

        Raises:
            NotFound: There is no such principal.
            PrincipalDisabled: It is disabled.
            LastAdmin: Nobody would be left who may manage principals.
        """
        ...

    async def disable(self, principal_id: PrincipalId, now: datetime, audit: AuditEntry) -> Account:
        """End a principal for ever.

        Raises:
            NotFound: There is no such principal.
            LastAdmin: Nobody would be left who may manage principals.
        """
        ...

    async def issue(self, token: Token, digest: str, max_usable: int, audit: AuditEntry) -> Token:
        """Keep the digest of a new token.

        Raises:
            NotFound: There is no such principal.
            PrincipalDisabled: It is disabled.
            QuotaExceeded: It has `max_usable` usable tokens.
        """
        ...

    async def token(self, token_id: TokenId) -> Token:
        """Read a token.

        Raises:
            NotFound: There is no such token.
        """
        ...

    async def tokens(
        self,
        *,
        owner: PrincipalId | None,
        after: TokenId | None,
        usable_at: datetime | None,
        limit: int,
    ) -> Sequence[Token]:
        """List tokens (of one owner; only those usable at a moment) by id, beginning after `after`."""
        ...

    async def revoke(self, token_id: TokenId, now: datetime, audit: AuditEntry) -> Token:
        """End a token; one that was revoked before stays as it is.

        Raises:
            NotFound: There is no such token.
            LastAdmin: Nobody would be left who may manage principals.
        """
        ...
