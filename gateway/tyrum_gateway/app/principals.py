"""The principals desk: who may call, in which roles, with which tokens.

Invariant: what a change takes away has ended when the change is answered: the next call is refused and
running streams are told to end, also when whoever asked for the change did not wait for the answer.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar

import structlog

from tyrum_gateway.app.finishing import Finishing
from tyrum_gateway.app.identity import Identity, new_token, token_digest
from tyrum_gateway.app.sessions import Sessions
from tyrum_gateway.domain.canonical import Value
from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.errors import InvalidRequest, NotAuthenticated, NotAuthorized
from tyrum_gateway.domain.ids import EntityId, PrincipalId, TokenId
from tyrum_gateway.domain.ports import Clock, Ids
from tyrum_gateway.domain.principal import Account, Principal, Role, Token, principal_name, token_label
from tyrum_gateway.domain.principal_store import PrincipalStore

log = structlog.get_logger(__name__)

Changed = TypeVar("Changed")

SHORTEST_LIFE = timedelta(seconds=60)
DEFAULT_LIFE = timedelta(days=90)
LONGEST_LIFE = timedelta(days=365)
"""For how long a token may work."""

MAX_USABLE = 64
"""Usable tokens of one principal."""


class PrincipalDesk:
    """What administrators may do with principals and tokens."""

    def __init__(
        self, *, store: PrincipalStore, clock: Clock, ids: Ids, identity: Identity, sessions: Sessions
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._identity = identity
        self._sessions = sessions
        self._finishing = Finishing()

    async def me(self, caller: Principal) -> tuple[Account, Token]:
        """Read what the gateway knows about a caller and the token it presented."""
        if caller.token_id is None:
            raise NotAuthenticated("the call presented no token")
        return await self._store.account(caller.principal_id), await self._store.token(caller.token_id)

    async def create(self, caller: Principal, name: str, roles: frozenset[Role]) -> Account:
        """Add a principal without a token.

        Raises:
            InvalidRequest: The name is not one.
            RequestIdReused: The name is taken.
        """
        account = Account(
            self._ids.new(PrincipalId), principal_name(name), roles, self._clock.now(), disabled_at=None
        )
        audit = _entry(
            caller, "principal.created", account.principal_id, name=account.name, roles=sorted(roles)
        )
        created = await self._store.create(account, audit)
        log.info("principal_created", principal=created.principal_id, by=caller.principal_id)
        return created

    async def account(self, wanted: str) -> Account:
        """Find a principal by name or id.

        Raises:
            NotFound: There is none.
        """
        return await self._store.account(wanted)

    async def accounts(
        self, after: PrincipalId | None, limit: int, *, include_disabled: bool
    ) -> Sequence[Account]:
        """List principals by id."""
        return await self._store.accounts(after=after, include_disabled=include_disabled, limit=limit)

    async def set_roles(self, caller: Principal, wanted: str, roles: frozenset[Role]) -> Account:
        """Replace a principal's roles; streams of one that loses a role end.

        Raises:
            NotFound: There is no such principal.
            PrincipalDisabled: It is disabled.
            LastAdmin: Nobody would be left who may manage principals.
        """
        before = await self._store.account(wanted)
        audit = _entry(
            caller,
            "principal.roles_set",
            before.principal_id,
            name=before.name,
            roles=sorted(roles),
            former=sorted(before.roles),
        )
        # By the roles each stream was opened with: what was read before may have changed since.
        cause = NotAuthorized("your roles have changed: call again")
        account = await self._take_away(
            self._store.set_roles(before.principal_id, roles, self._clock.now(), audit),
            lambda changed: self._sessions.demote(changed.principal_id, changed.roles, cause),
        )
        log.info("principal_roles_set", principal=account.principal_id, by=caller.principal_id)
        return account

    async def disable(self, caller: Principal, wanted: str) -> Account:
        """End a principal for ever.

        Raises:
            NotFound: There is no such principal.
            LastAdmin: Nobody would be left who may manage principals.
        """
        found = await self._store.account(wanted)
        audit = _entry(caller, "principal.disabled", found.principal_id, name=found.name)
        cause = NotAuthenticated("the principal was disabled")
        account = await self._take_away(
            self._store.disable(found.principal_id, self._clock.now(), audit),
            lambda changed: self._sessions.end(changed.principal_id, cause),
        )
        log.info("principal_disabled", principal=account.principal_id, by=caller.principal_id)
        return account

    async def issue(self, caller: Principal, wanted: str, label: str, life: timedelta) -> tuple[str, Token]:
        """Make a token; return its secret, which is kept nowhere, and its record.

        Raises:
            InvalidRequest: The label is not one, or the token would work for too short or too long.
            NotFound: There is no such principal.
            PrincipalDisabled: It is disabled.
            QuotaExceeded: It has `MAX_USABLE` usable tokens.
        """
        if not SHORTEST_LIFE <= life <= LONGEST_LIFE:
            bounds = f"{SHORTEST_LIFE.total_seconds():.0f} s to {LONGEST_LIFE.days} days"
            raise InvalidRequest("expires_in_seconds", f"must be {bounds}")
        label = token_label(label)
        owner = await self._store.account(wanted)
        secret, now = new_token(), self._clock.now()
        token = Token(self._ids.new(TokenId), owner.principal_id, label, now, now + life)
        audit = _entry(
            caller,
            "token.issued",
            token.token_id,
            principal=owner.principal_id,
            name=owner.name,
            label=label,
            seconds=round(life.total_seconds()),
        )
        issued = await self._store.issue(token, token_digest(secret), MAX_USABLE, audit)
        log.info(
            "token_issued", token_id=issued.token_id, principal=owner.principal_id, by=caller.principal_id
        )
        return secret, issued

    async def tokens(
        self, wanted: str, after: TokenId | None, limit: int, *, include_unusable: bool
    ) -> Sequence[Token]:
        """List the tokens of a principal (of all, when none is named) by id.

        Raises:
            NotFound: There is no such principal.
        """
        owner = (await self._store.account(wanted)).principal_id if wanted else None
        usable_at = None if include_unusable else self._clock.now()
        return await self._store.tokens(owner=owner, after=after, usable_at=usable_at, limit=limit)

    async def revoke(self, caller: Principal, token_id: TokenId) -> Token:
        """End a token and the streams that were opened with it.

        Raises:
            NotFound: There is no such token.
            LastAdmin: Nobody would be left who may manage principals.
        """
        found = await self._store.token(token_id)
        audit = _entry(caller, "token.revoked", token_id, principal=found.principal_id, label=found.label)
        cause = NotAuthenticated("the bearer token was revoked")
        token = await self._take_away(
            self._store.revoke(token_id, self._clock.now(), audit),
            lambda changed: self._sessions.end(changed.principal_id, cause, changed.token_id),
        )
        log.info("token_revoked", token_id=token_id, principal=token.principal_id, by=caller.principal_id)
        return token

    async def _take_away(self, change: Awaitable[Changed], end: Callable[[Changed], None]) -> Changed:
        """Make a change durable and end what it takes away, whatever becomes of who asked for it."""

        async def made() -> Changed:
            changed = await change
            self._identity.forget()
            end(changed)
            return changed

        return await self._finishing.run(made())


def _entry(caller: Principal, kind: str, subject: EntityId, **details: Value) -> AuditEntry:
    """Record who did it, and how and from where that was established."""
    return AuditEntry(
        kind, caller.principal_id, subject, {**details, "method": caller.method, "origin": caller.origin}
    )
