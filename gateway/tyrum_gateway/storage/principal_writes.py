"""What the writing thread does to principals and tokens, inside a transaction that `writer` owns.

Invariants: a change and its audit entry are one commit; whatever changes, somebody who may manage principals
can still authenticate; a token that was revoked never works again.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import ColumnElement, bindparam, func, literal_column, select
from sqlalchemy.dialects.sqlite import insert

from tyrum_gateway.domain.canonical import canonical_json
from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.errors import (
    LastAdmin,
    NotFound,
    PrincipalDisabled,
    QuotaExceeded,
    RequestIdReused,
    StateUnusable,
)
from tyrum_gateway.domain.ids import PrincipalId, TokenId
from tyrum_gateway.domain.principal import Account, Role, Token
from tyrum_gateway.storage import rows
from tyrum_gateway.storage.statements import INSERT_PRINCIPAL, PRINCIPAL_BY_NAME, compiled
from tyrum_gateway.storage.tables import principals, tokens
from tyrum_gateway.storage.times import to_microseconds
from tyrum_gateway.storage.transaction import Transaction

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


def create(transaction: Transaction, *, account: Account, audit: AuditEntry) -> Account:
    """See `PrincipalStore.create`."""
    if transaction.run(PRINCIPAL_BY_NAME, {"wanted": account.name}).fetchone() is not None:
        raise RequestIdReused(f"the name `{account.name}` is taken: choose another one", name=account.name)
    transaction.run(INSERT_PRINCIPAL, rows.account_values(account))
    transaction.audit((audit,), account.created_at)
    return account


def set_roles(
    transaction: Transaction,
    *,
    principal_id: PrincipalId,
    roles: frozenset[Role],
    now: datetime,
    audit: AuditEntry,
) -> Account:
    """See `PrincipalStore.set_roles`."""
    account = _active(transaction, principal_id)
    if account.roles == roles:
        return account
    transaction.run(_SET_ROLES, {"principal": principal_id, "new_roles": canonical_json(sorted(roles))})
    _require_administrator(transaction, now)
    # As they are in this very transaction: whoever asked has read them earlier.
    audit = replace(audit, details={**audit.details, "former": sorted(account.roles)})
    transaction.audit((audit,), now)
    return _account(transaction, principal_id)


def disable(
    transaction: Transaction, *, principal_id: PrincipalId, now: datetime, audit: AuditEntry
) -> Account:
    """See `PrincipalStore.disable`."""
    account = _account(transaction, principal_id)
    if account.disabled_at is not None:
        return account
    transaction.run(_DISABLE, {"principal": principal_id, "at": to_microseconds(now)})
    _require_administrator(transaction, now)
    transaction.audit((audit,), now)
    return _account(transaction, principal_id)


def issue(
    transaction: Transaction, *, token: Token, digest: str, max_usable: int, audit: AuditEntry
) -> Token:
    """See `PrincipalStore.issue`."""
    account = _active(transaction, token.principal_id)
    at = {"owner": account.principal_id, "now": to_microseconds(token.created_at)}
    if transaction.run(_COUNT_USABLE, at).fetchone()["usable"] >= max_usable:
        raise QuotaExceeded(
            f"`{account.name}` has {max_usable} usable tokens: revoke some", principal=account.name
        )
    transaction.run(_INSERT_TOKEN, rows.token_values(token, digest))
    transaction.audit((audit,), token.created_at)
    return token


def revoke(transaction: Transaction, *, token_id: TokenId, now: datetime, audit: AuditEntry) -> Token:
    """See `PrincipalStore.revoke`."""
    found = transaction.run(TOKEN, {"wanted": token_id}).fetchone()
    if found is None:
        raise NotFound("token", token_id)
    if found["revoked_at"] is not None:
        return rows.token(found)
    transaction.run(_REVOKE, {"wanted": token_id, "at": to_microseconds(now)})
    _require_administrator(transaction, now)
    transaction.audit((audit,), now)
    return rows.token(transaction.run(TOKEN, {"wanted": token_id}).fetchone())


def ensure(
    transaction: Transaction,
    *,
    principal_id: PrincipalId,
    name: str,
    roles: Sequence[str],
    token_sha256: str,
    now: datetime,
) -> PrincipalId:
    """Create the named principal unless it exists, and replace what its token file held by this token.

    Raises:
        StateUnusable: The token is another principal's.
    """
    at = to_microseconds(now)
    named = transaction.run(PRINCIPAL_BY_NAME, {"wanted": name}).fetchone()
    owner = principal_id if named is None else PrincipalId(named["principal_id"])
    known = transaction.run(_TOKEN_BY_DIGEST, {"digest": token_sha256}).fetchone()
    if known is not None and known["principal_id"] != owner:
        raise StateUnusable(
            f"the token in the file of `{name}` is another principal's: delete the file to get a new one",
            principal=owner,
        )
    audit: list[AuditEntry] = []
    if named is None:
        chosen = frozenset(Role(role) for role in roles)
        transaction.run(INSERT_PRINCIPAL, rows.account_values(Account(owner, name, chosen, now)))
        audit.append(
            AuditEntry("principal.created", "kernel", owner, {"name": name, "roles": sorted(chosen)})
        )
    if known is None:
        token = Token(TokenId(f"{TokenId.prefix}_0{token_sha256[:25]}"), owner, FILE_LABEL, now, None)
        transaction.run(_INSERT_TOKEN, rows.token_values(token, token_sha256))
        audit.append(AuditEntry("token.issued", "kernel", token.token_id, {"principal": owner, "file": True}))
    transaction.run(_REPLACE_FILE_TOKENS, {"owner": owner, "kept": token_sha256, "at": at})
    transaction.audit(audit, now)
    return owner


def _account(transaction: Transaction, principal_id: PrincipalId) -> Account:
    found = transaction.run(ACCOUNT, {"principal": principal_id}).fetchone()
    if found is None:
        raise NotFound("principal", principal_id)
    return rows.account(found)


def _active(transaction: Transaction, principal_id: PrincipalId) -> Account:
    account = _account(transaction, principal_id)
    if account.disabled_at is not None:
        raise PrincipalDisabled(
            f"`{account.name}` is disabled for ever: create another principal", principal=account.name
        )
    return account


def _require_administrator(transaction: Transaction, now: datetime) -> None:
    """Refuse a change after which nobody could take it back."""
    if transaction.run(_ADMINISTRATOR, {"now": to_microseconds(now)}).fetchone() is None:
        raise LastAdmin(
            "nobody who may manage principals would have a usable token: give somebody else the role `admin`"
            " and a token first"
        )
