"""What the writing thread does to principals and tokens, inside a transaction that `writer` owns.

Invariants: a change and its audit entry are one commit; whatever changes, somebody who may manage principals
can still authenticate; a token that was revoked never works again.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import ColumnElement, bindparam, func, literal_column, select
from sqlalchemy.dialects.sqlite import insert

from tyrum_gateway.domain.canonical import canonical_json
from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.errors import (
    KernelBug,
    LastAdmin,
    NotFound,
    PrincipalDisabled,
    QuotaExceeded,
    RequestIdReused,
)
from tyrum_gateway.domain.ids import PrincipalId, TokenId
from tyrum_gateway.domain.principal import Account, Role, Token
from tyrum_gateway.storage import rows
from tyrum_gateway.storage.statements import INSERT_PRINCIPAL, PRINCIPAL_BY_NAME, compiled
from tyrum_gateway.storage.tables import principals, tokens
from tyrum_gateway.storage.times import to_microseconds
from tyrum_gateway.storage.writes import append_audit

FILE_LABEL = ""
"""Label of the token that the local operator's file holds; tokens that are issued have another one."""

ACCOUNT = compiled(select(principals).where(principals.c.principal_id == bindparam("principal")))
TOKEN = compiled(select(tokens).where(tokens.c.token_id == bindparam("wanted")))

_INSERT_TOKEN = compiled(
    insert(tokens).values({column.name: bindparam(column.name) for column in tokens.columns})
)
_TOKEN_BY_DIGEST = compiled(select(tokens).where(tokens.c.token_sha256 == bindparam("digest")))
_SET_ROLES = compiled(
    principals.update()
    .where(principals.c.principal_id == bindparam("principal"))
    .values(roles=bindparam("new_roles"))
)
_DISABLE = compiled(
    principals.update()
    .where(principals.c.principal_id == bindparam("principal"))
    .values(disabled_at=bindparam("at"))
)
_REVOKE = compiled(
    tokens.update().where(tokens.c.token_id == bindparam("wanted")).values(revoked_at=bindparam("at"))
)
_REPLACE_FILE_TOKENS = compiled(
    tokens.update()
    .where(
        tokens.c.principal_id == bindparam("owner"),
        tokens.c.label == literal_column(f"'{FILE_LABEL}'"),
        tokens.c.token_sha256 != bindparam("kept"),
        tokens.c.revoked_at.is_(None),
    )
    .values(revoked_at=bindparam("at"))
)


def usable_now() -> ColumnElement[bool]:
    """Tell in a statement whether a token works at the parameter `now`."""
    return tokens.c.revoked_at.is_(None) & (
        tokens.c.expires_at.is_(None) | (tokens.c.expires_at > bindparam("now"))
    )


_COUNT_USABLE = compiled(
    select(func.count().label("usable")).where(tokens.c.principal_id == bindparam("owner"), usable_now())
)
_ADMINISTRATOR = compiled(
    select(principals.c.principal_id)
    .join(tokens, tokens.c.principal_id == principals.c.principal_id)
    .where(
        principals.c.disabled_at.is_(None),
        func.instr(principals.c.roles, literal_column(f"'\"{Role.ADMIN.value}\"'")) > literal_column("0"),
        usable_now(),
    )
    .limit(literal_column("1"))
)


def create(connection: sqlite3.Connection, *, account: Account, audit: AuditEntry) -> Account:
    """See `PrincipalStore.create`."""
    if PRINCIPAL_BY_NAME.run(connection, {"wanted": account.name}).fetchone() is not None:
        raise RequestIdReused(f"the name `{account.name}` is taken: choose another one", name=account.name)
    INSERT_PRINCIPAL.run(connection, rows.account_values(account))
    append_audit(connection, (audit,), account.created_at)
    return account


def set_roles(
    connection: sqlite3.Connection,
    *,
    principal_id: PrincipalId,
    roles: frozenset[Role],
    now: datetime,
    audit: AuditEntry,
) -> Account:
    """See `PrincipalStore.set_roles`."""
    account = _active(connection, principal_id)
    if account.roles == roles:
        return account
    _SET_ROLES.run(connection, {"principal": principal_id, "new_roles": canonical_json(sorted(roles))})
    _require_administrator(connection, now)
    # As they are in this very transaction: whoever asked has read them earlier.
    audit = replace(audit, details={**audit.details, "former": sorted(account.roles)})
    append_audit(connection, (audit,), now)
    return _account(connection, principal_id)


def disable(
    connection: sqlite3.Connection, *, principal_id: PrincipalId, now: datetime, audit: AuditEntry
) -> Account:
    """See `PrincipalStore.disable`."""
    account = _account(connection, principal_id)
    if account.disabled_at is not None:
        return account
    _DISABLE.run(connection, {"principal": principal_id, "at": to_microseconds(now)})
    _require_administrator(connection, now)
    append_audit(connection, (audit,), now)
    return _account(connection, principal_id)


def issue(
    connection: sqlite3.Connection, *, token: Token, digest: str, max_usable: int, audit: AuditEntry
) -> Token:
    """See `PrincipalStore.issue`."""
    account = _active(connection, token.principal_id)
    at = {"owner": account.principal_id, "now": to_microseconds(token.created_at)}
    if _COUNT_USABLE.run(connection, at).fetchone()["usable"] >= max_usable:
        raise QuotaExceeded(
            f"`{account.name}` has {max_usable} usable tokens: revoke some", principal=account.name
        )
    _INSERT_TOKEN.run(connection, rows.token_values(token, digest))
    append_audit(connection, (audit,), token.created_at)
    return token


def revoke(connection: sqlite3.Connection, *, token_id: TokenId, now: datetime, audit: AuditEntry) -> Token:
    """See `PrincipalStore.revoke`."""
    found = TOKEN.run(connection, {"wanted": token_id}).fetchone()
    if found is None:
        raise NotFound("token", token_id)
    if found["revoked_at"] is not None:
        return rows.token(found)
    _REVOKE.run(connection, {"wanted": token_id, "at": to_microseconds(now)})
    _require_administrator(connection, now)
    append_audit(connection, (audit,), now)
    return rows.token(TOKEN.run(connection, {"wanted": token_id}).fetchone())


def ensure(
    connection: sqlite3.Connection,
    *,
    principal_id: PrincipalId,
    name: str,
    roles: Sequence[str],
    token_sha256: str,
    now: datetime,
) -> PrincipalId:
    """Create the named principal unless it exists, and replace what its token file held by this token.

    Raises:
        KernelBug: The token is another principal's.
    """
    at = to_microseconds(now)
    named = PRINCIPAL_BY_NAME.run(connection, {"wanted": name}).fetchone()
    owner = principal_id if named is None else PrincipalId(named["principal_id"])
    known = _TOKEN_BY_DIGEST.run(connection, {"digest": token_sha256}).fetchone()
    if known is not None and known["principal_id"] != owner:
        raise KernelBug(f"the token given to `{name}` is another principal's", principal=owner)
    audit: list[AuditEntry] = []
    if named is None:
        chosen = frozenset(Role(role) for role in roles)
        INSERT_PRINCIPAL.run(connection, rows.account_values(Account(owner, name, chosen, now)))
        audit.append(
            AuditEntry("principal.created", "kernel", owner, {"name": name, "roles": sorted(chosen)})
        )
    if known is None:
        token = Token(TokenId(f"{TokenId.prefix}_0{token_sha256[:25]}"), owner, FILE_LABEL, now, None)
        _INSERT_TOKEN.run(connection, rows.token_values(token, token_sha256))
        audit.append(AuditEntry("token.issued", "kernel", token.token_id, {"principal": owner, "file": True}))
    _REPLACE_FILE_TOKENS.run(connection, {"owner": owner, "kept": token_sha256, "at": at})
    append_audit(connection, audit, now)
    return owner


def _account(connection: sqlite3.Connection, principal_id: PrincipalId) -> Account:
    found = ACCOUNT.run(connection, {"principal": principal_id}).fetchone()
    if found is None:
        raise NotFound("principal", principal_id)
    return rows.account(found)


def _active(connection: sqlite3.Connection, principal_id: PrincipalId) -> Account:
    account = _account(connection, principal_id)
    if account.disabled_at is not None:
        raise PrincipalDisabled(
            f"`{account.name}` is disabled for ever: create another principal", principal=account.name
        )
    return account


def _require_administrator(connection: sqlite3.Connection, now: datetime) -> None:
    """Refuse a change after which nobody could take it back."""
    if _ADMINISTRATOR.run(connection, {"now": to_microseconds(now)}).fetchone() is None:
        raise LastAdmin(
            "nobody who may manage principals would have a usable token: give somebody else the role `admin`"
            " and a token first"
        )
