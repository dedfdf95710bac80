"""Principals and tokens over gRPC. Invariant: a secret is shown once, to whoever asked for it."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tyrum.identity.v1.identity_pb2 import (
    CreatePrincipalRequest,
    DisablePrincipalRequest,
    IssueTokenRequest,
    IssueTokenResponse,
    ListPrincipalsRequest,
    ListTokensRequest,
    Principal,
    RevokeTokenRequest,
    Role,
    SetRolesRequest,
    Token,
    WhoAmIRequest,
)
from tyrum_gateway.cli.connection import DEADLINE, Gateway, Target, connect, find, flags
from tyrum_gateway.cli.failure import Failure
from tyrum_gateway.cli.output import (
    Format,
    as_json,
    emit,
    emit_all,
    enum_word,
    fields,
    moment,
    note,
    say,
)
from tyrum_gateway.cli.streams import Unwritten
from tyrum_gateway.cli.tables import Column, table, when

__all__ = [
    "Order", "create", "disable", "find", "issue", "list_principals", "list_tokens", "revoke", "set_roles",
    "whoami",
]  # fmt: skip

_PAGE = 200
_PRINCIPAL = (
    Column("NAME"),
    Column("ROLES", least=16),
    Column("CREATED", leaves=1),
    Column("STATE"),
    Column("ID", leaves=2),
)
_TOKEN = (
    Column("TOKEN"),
    Column("LABEL", least=12),
    Column("PRINCIPAL"),
    Column("CREATED", leaves=2),
    Column("EXPIRES"),
    Column("REVOKED", leaves=1),
)


@dataclass(frozen=True, slots=True)
class Order:
    """A token that is wanted."""

    principal: str
    label: str
    life: timedelta
    save: Path | None
    """New file for the secret; None prints it."""


async def whoami(target: Target, output: Format) -> None:
    """Print whom the gateway takes the caller for."""
    async with connect(target) as gateway:
        me = await gateway.identity.WhoAmI(WhoAmIRequest(), metadata=gateway.metadata, timeout=DEADLINE)
    if output is not Format.TEXT:
        emit(as_json(me), output)
        return
    expires = moment(me.token.expires_at) or "never (the operator's token file)"
    fields(
        [
            ("principal", me.principal.name),
            ("id", me.principal.principal_id),
            ("roles", _roles(me.principal) or "none"),
            ("token", f"{me.token.token_id} {me.token.label}".strip()),
            ("expires", expires),
            ("authenticated by", me.method),
            ("from", me.origin),
        ]
    )


async def list_principals(target: Target, output: Format, *, every: bool, wide: bool) -> None:
    """Print principals, oldest first."""
    async with connect(target) as gateway:
        found = await _all_principals(gateway, every=every)
    _principals(found, output, wide=wide)


async def _all_principals(gateway: Gateway, *, every: bool) -> list[Principal]:
    found: list[Principal] = []
    page_token = ""
    while True:
        request = ListPrincipalsRequest(include_disabled=every, page_size=_PAGE, page_token=page_token)
        page = await gateway.identity.ListPrincipals(request, metadata=gateway.metadata, timeout=DEADLINE)
        found += page.principals
        page_token = page.next_page_token
        if not page_token:
            return found


async def create(target: Target, name: str, roles: Sequence[str], output: Format) -> None:
    """Add a principal and print it."""
    request = CreatePrincipalRequest(name=name, roles=_numbers(roles))
    async with connect(target) as gateway:
        answer = await gateway.identity.CreatePrincipal(request, metadata=gateway.metadata, timeout=DEADLINE)
    _principal(answer.principal, output)
    if not roles:
        known = ", ".join(enum_word(Role, role, "ROLE_") for role in Role.values() if role)
        note(
            f"`{name}` has no role: it can ask who it is (tyrum whoami) and do nothing else; "
            f"give it some of {known}: tyrum principals roles {name} --role ROLE{flags(target)}"
        )
    if output is Format.TEXT:
        note(f"give it a token: tyrum principals tokens issue {name} --label TEXT{flags(target)}")


async def set_roles(target: Target, name: str, roles: Sequence[str], output: Format) -> None:
    """Replace the roles of a principal and print it."""
    request = SetRolesRequest(principal=name, roles=_numbers(roles))
    async with connect(target) as gateway:
        answer = await gateway.identity.SetRoles(request, metadata=gateway.metadata, timeout=DEADLINE)
    _principal(answer.principal, output)


async def disable(target: Target, name: str, output: Format) -> None:
    """End a principal and print it."""
    async with connect(target) as gateway:
        answer = await gateway.identity.DisablePrincipal(
            DisablePrincipalRequest(principal=name), metadata=gateway.metadata, timeout=DEADLINE
        )
    _principal(answer.principal, output)


async def issue(target: Target, order: Order, output: Format) -> None:
    """Make a token; print its secret or write it into a new file.

    Raises:
        Failure: The file exists already or cannot be made; then no token is made.
    """
    request = IssueTokenRequest(
        principal=order.principal,
        label=order.label,
        expires_in_seconds=round(order.life.total_seconds()),
    )
    saved = None if order.save is None else _new_file(order.save)
    try:
        async with connect(target) as gateway:
            answer = await gateway.identity.IssueToken(request, metadata=gateway.metadata, timeout=DEADLINE)
    except BaseException:
        if saved is not None and order.save is not None:
            os.close(saved)
            order.save.unlink(missing_ok=True)
        raise
    if saved is not None:
        with os.fdopen(saved, "w", encoding="utf-8") as file:
            file.write(answer.secret + "\n")
            file.flush()
            os.fsync(file.fileno())
        answer.secret = ""
    try:
        _issued(answer, order, output)
    except (Unwritten, BrokenPipeError) as error:
        token = answer.token.token_id
        raise Failure(
            f"token {token} of `{order.principal}` was made, but stdout did not take it: "
            f"{error if isinstance(error, Unwritten) else error.strerror}",
            hint=f"tyrum principals tokens revoke {token}{flags(target)}"
            if order.save is None
            else f"it is in `{order.save}`",
        ) from error


def _issued(answer: IssueTokenResponse, order: Order, output: Format) -> None:
    if output is not Format.TEXT:
        emit(as_json(answer), output)
        return
    until = f"{answer.token.token_id} of `{order.principal}` works until {moment(answer.token.expires_at)}"
    if order.save is None:
        say(answer.secret)
        note(f"{until}; it is not shown again")
    else:
        note(f"{until}; it is in `{order.save}`")


async def list_tokens(target: Target, name: str, output: Format, *, every: bool, wide: bool) -> None:
    """Print tokens by id."""
    found: list[Token] = []
    async with connect(target) as gateway:
        page_token = ""
        while True:
            request = ListTokensRequest(
                principal=name, include_unusable=every, page_size=_PAGE, page_token=page_token
            )
            page = await gateway.identity.ListTokens(request, metadata=gateway.metadata, timeout=DEADLINE)
            found += page.tokens
            page_token = page.next_page_token
            if not page_token:
                break
        principals = await _all_principals(gateway, every=True) if output is Format.TEXT else []
    names = {
        item.principal_id: item.name + (" (disabled)" if item.HasField("disabled_at") else "")
        for item in principals
    }
    _tokens(found, output, names, wide=wide)


async def revoke(target: Target, token_id: str, output: Format) -> None:
    """End a token and print it."""
    async with connect(target) as gateway:
        answer = await gateway.identity.RevokeToken(
            RevokeTokenRequest(token_id=token_id), metadata=gateway.metadata, timeout=DEADLINE
        )
    if output is Format.TEXT:
        _tokens([answer.token], output, {})
    else:
        emit(as_json(answer.token), output)


def _new_file(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        hint = "no token was made; name a file that does not exist yet" if os.path.lexists(path) else ""
        raise Failure(f"cannot make `{path}`: {error.strerror}", hint=hint) from error


def _numbers(roles: Iterable[str]) -> "list[Role.ValueType]":
    return [Role.Value(f"ROLE_{role.upper()}") for role in roles]


def _roles(principal: Principal) -> str:
    return ", ".join(enum_word(Role, role, "ROLE_") for role in principal.roles)


def _principal(principal: Principal, output: Format) -> None:
    if output is Format.TEXT:
        _principals([principal], output)
    else:
        emit(as_json(principal), output)


def _principals(found: Sequence[Principal], output: Format, *, wide: bool = False) -> None:
    if output is not Format.TEXT:
        emit_all(found, output)
        return
    rows = [
        (
            item.name,
            _roles(item) or "none",
            when(item.created_at),
            f"disabled {moment(item.disabled_at)}" if item.HasField("disabled_at") else "active",
            item.principal_id,
        )
        for item in found
    ]
    table(_PRINCIPAL, rows, wide=wide)


def _tokens(found: Sequence[Token], output: Format, names: Mapping[str, str], *, wide: bool = False) -> None:
    """Print tokens; a principal whose name is not known is shown by its id."""
    if output is not Format.TEXT:
        emit_all(found, output)
        return
    if not found:
        note("there are no such tokens")
        return
    rows = [
        (
            item.token_id,
            item.label or "operator's token file",
            names.get(item.principal_id, item.principal_id),
            when(item.created_at),
            when(item.expires_at, never="never"),
            when(item.revoked_at, never="no"),
        )
        for item in found
    ]
    table(_TOKEN, rows, wide=wide)
