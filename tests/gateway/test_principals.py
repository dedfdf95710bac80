"""Principals and tokens at the desk, over a real store: what may go, what is recorded, what is kept."""

import hashlib
import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from tyrum_gateway.app.identity import Identity, new_token
from tyrum_gateway.app.principals import DEFAULT_LIFE, LONGEST_LIFE, MAX_USABLE, PrincipalDesk
from tyrum_gateway.app.sessions import Sessions
from tyrum_gateway.bootstrap.system import RandomIds, SystemClock
from tyrum_gateway.domain.errors import (
    InvalidRequest,
    LastAdmin,
    NotAuthenticated,
    NotFound,
    PrincipalDisabled,
    QuotaExceeded,
    RequestIdReused,
)
from tyrum_gateway.domain.ids import TokenId
from tyrum_gateway.domain.principal import Principal, Role
from tyrum_gateway.storage import SqliteStore

ADMIN = frozenset({Role.ADMIN})
CHAT = frozenset({Role.CHAT})


@dataclass(frozen=True, slots=True)
class Place:
    """A desk, and the operator that a first start makes."""

    desk: PrincipalDesk
    identity: Identity
    store: SqliteStore
    database: Path
    operator: Principal
    secret: str

    def audit(self) -> list[tuple[str, str, str, dict[str, object]]]:
        """Kind, actor, subject and details of every row of the audit log."""
        connection = sqlite3.connect(self.database)
        rows = connection.execute("SELECT kind, actor, subject, details FROM audit ORDER BY sequence")
        found = [(kind, actor, subject, json.loads(details)) for kind, actor, subject, details in rows]
        connection.close()
        return found


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A desk over a new database."""
    clock, ids = SystemClock(), RandomIds()
    async with await SqliteStore.open(tmp_path / "tyrum.sqlite3") as store:
        identity = Identity(store=store, clock=clock, ids=ids)
        secret = new_token()
        assert await identity.ensure("operator", list(Role), secret)
        desk = PrincipalDesk(
            store=store.principals, clock=clock, ids=ids, identity=identity, sessions=Sessions(clock)
        )
        operator = await identity.authenticate(secret)
        yield Place(desk, identity, store, tmp_path / "tyrum.sqlite3", operator, secret)


async def test_every_change_is_recorded_with_who_made_it(place: Place) -> None:
    """Create, roles, issue, revoke and disable each write one audit row with actor, method and origin."""
    before = len(place.audit())
    anna = await place.desk.create(place.operator, "anna", CHAT)
    await place.desk.set_roles(place.operator, "anna", CHAT | {Role.APPROVER})
    _, token = await place.desk.issue(place.operator, anna.principal_id, "laptop", DEFAULT_LIFE)
    await place.desk.revoke(place.operator, token.token_id)
    await place.desk.disable(place.operator, "anna")
    rows = place.audit()[before:]
    assert [(kind, subject) for kind, _, subject, _ in rows] == [
        ("principal.created", anna.principal_id),
        ("principal.roles_set", anna.principal_id),
        ("token.issued", token.token_id),
        ("token.revoked", token.token_id),
        ("principal.disabled", anna.principal_id),
    ]
    assert {actor for _, actor, _, _ in rows} == {place.operator.principal_id}
    assert all(details["method"] == "token" for *_, details in rows)
    assert rows[1][3]["former"] == ["chat"]
    assert rows[1][3]["roles"] == ["approver", "chat"]


async def test_what_changes_nothing_records_nothing(place: Place) -> None:
    """The same roles, a second disabling and a second revocation leave state and audit as they are."""
    await place.desk.create(place.operator, "anna", CHAT)
    _, token = await place.desk.issue(place.operator, "anna", "laptop", DEFAULT_LIFE)
    first = await place.desk.revoke(place.operator, token.token_id)
    gone = await place.desk.disable(place.operator, "anna")
    rows = len(place.audit())
    assert await place.desk.revoke(place.operator, token.token_id) == first
    assert await place.desk.disable(place.operator, "anna") == gone
    await place.desk.set_roles(place.operator, "operator", frozenset(Role))
    assert len(place.audit()) == rows


async def test_somebody_who_may_manage_principals_is_always_left(place: Place) -> None:
    """The last administrator with a usable token keeps role, token and account until there is another."""
    mine = place.operator.token_id
    assert mine is not None
    await place.desk.create(place.operator, "second", ADMIN)
    rows = len(place.audit())
    for attempt in (
        place.desk.disable(place.operator, "operator"),
        place.desk.set_roles(place.operator, "operator", CHAT),
        place.desk.revoke(place.operator, mine),
    ):
        with pytest.raises(LastAdmin, match="give somebody else the role"):
            await attempt
    assert len(place.audit()) == rows
    assert (await place.identity.authenticate(place.secret)).roles == frozenset(Role)
    secret, _ = await place.desk.issue(place.operator, "second", "desk", DEFAULT_LIFE)
    await place.desk.disable(place.operator, "operator")
    with pytest.raises(NotAuthenticated):
        await place.identity.authenticate(place.secret)
    second = await place.identity.authenticate(secret)
    with pytest.raises(LastAdmin):
        await place.desk.disable(second, "second")


async def test_disabled_is_final(place: Place) -> None:
    """A disabled principal gets no token and no role, its tokens stay dead and its name stays taken."""
    await place.desk.create(place.operator, "anna", CHAT)
    secret, _ = await place.desk.issue(place.operator, "anna", "laptop", DEFAULT_LIFE)
    await place.identity.authenticate(secret)
    await place.desk.disable(place.operator, "anna")
    with pytest.raises(NotAuthenticated):
        await place.identity.authenticate(secret)
    with pytest.raises(PrincipalDisabled):
        await place.desk.issue(place.operator, "anna", "again", DEFAULT_LIFE)
    with pytest.raises(PrincipalDisabled):
        await place.desk.set_roles(place.operator, "anna", ADMIN)
    with pytest.raises(RequestIdReused, match="is taken"):
        await place.desk.create(place.operator, "anna", CHAT)
    active = await place.desk.accounts(None, 10, include_disabled=False)
    assert [account.name for account in active] == ["operator"]
    every = await place.desk.accounts(None, 10, include_disabled=True)
    assert [account.name for account in every] == ["operator", "anna"]


async def test_a_start_does_not_bring_a_revoked_token_back(place: Place) -> None:
    """The operator's file holds a revoked token: the next start says so, and the token stays revoked."""
    mine = place.operator.token_id
    assert mine is not None
    await place.desk.create(place.operator, "second", ADMIN)
    await place.desk.issue(place.operator, "second", "desk", DEFAULT_LIFE)
    issued, _ = await place.desk.issue(place.operator, "operator", "other machine", DEFAULT_LIFE)
    await place.desk.revoke(place.operator, mine)
    assert not await place.identity.ensure("operator", list(Role), place.secret)
    with pytest.raises(NotAuthenticated):
        await place.identity.authenticate(place.secret)
    assert await place.identity.ensure("operator", list(Role), new_token())
    assert (await place.identity.authenticate(issued)).name == "operator"


async def test_only_the_digest_of_a_token_is_kept(place: Place) -> None:
    """A token is 32 random bytes behind `tyt_`; the database holds its SHA-256 and never the token."""
    await place.desk.create(place.operator, "anna", CHAT)
    secret, token = await place.desk.issue(place.operator, "anna", "laptop", DEFAULT_LIFE)
    other, _ = await place.desk.issue(place.operator, "anna", "laptop", DEFAULT_LIFE)
    assert secret.startswith("tyt_")
    assert len(secret) == len("tyt_") + 43
    assert secret != other
    assert token.expires_at is not None
    assert token.expires_at - token.created_at == DEFAULT_LIFE
    kept = b"".join(file.read_bytes() for file in place.database.parent.glob("tyrum.sqlite3*"))
    assert secret.encode() not in kept
    assert hashlib.sha256(secret.encode()).hexdigest().encode() in kept


async def test_a_principal_has_a_bounded_number_of_tokens(place: Place) -> None:
    """The 65th usable token of a principal is refused; revoking one makes room."""
    await place.desk.create(place.operator, "anna", CHAT)
    issued = [
        (await place.desk.issue(place.operator, "anna", f"number {number}", DEFAULT_LIFE))[1]
        for number in range(MAX_USABLE)
    ]
    with pytest.raises(QuotaExceeded, match="revoke some"):
        await place.desk.issue(place.operator, "anna", "one more", DEFAULT_LIFE)
    await place.desk.revoke(place.operator, issued[0].token_id)
    await place.desk.issue(place.operator, "anna", "one more", DEFAULT_LIFE)
    usable = await place.desk.tokens("anna", None, 100, include_unusable=False)
    assert len(usable) == MAX_USABLE
    first = await place.desk.tokens("anna", None, 10, include_unusable=True)
    rest = await place.desk.tokens("anna", first[-1].token_id, 100, include_unusable=True)
    assert len({token.token_id for token in (*first, *rest)}) == MAX_USABLE + 1


@pytest.mark.parametrize(
    "name",
    ["", "Anna", "anna b", "änna", "a" * 65, "-anna", "prin_anna", "kernel", "anna\n", "anna\u202e", "а"],
)
async def test_a_name_cannot_be_mistaken(place: Place, name: str) -> None:
    """Names are short, plain ASCII and never look like an id; the refusal names the field."""
    with pytest.raises(InvalidRequest) as caught:
        await place.desk.create(place.operator, name, CHAT)
    assert caught.value.field == "name"


@pytest.mark.parametrize("label", ["", " ", "a" * 65, "line\nbreak", "\x1b[2J", " padded"])
async def test_a_label_is_what_it_looks_like(place: Place, label: str) -> None:
    """A label is 1 to 64 visible characters; the refusal names the field."""
    with pytest.raises(InvalidRequest) as caught:
        await place.desk.issue(place.operator, "operator", label, DEFAULT_LIFE)
    assert caught.value.field == "label"


@pytest.mark.parametrize("life", [timedelta(seconds=59), LONGEST_LIFE + timedelta(seconds=1)])
async def test_a_token_lives_neither_too_short_nor_for_ever(place: Place, life: timedelta) -> None:
    """A token that is issued works for a minute to a year, never without end."""
    with pytest.raises(InvalidRequest) as caught:
        await place.desk.issue(place.operator, "operator", "laptop", life)
    assert caught.value.field == "expires_in_seconds"


async def test_what_does_not_exist_is_named(place: Place) -> None:
    """Unknown principals and tokens are not found, by name and by id."""
    nobody = "0" * 26
    for attempt in (
        place.desk.account("nobody"),
        place.desk.set_roles(place.operator, f"prin_{nobody}", CHAT),
        place.desk.disable(place.operator, "nobody"),
        place.desk.issue(place.operator, "nobody", "laptop", DEFAULT_LIFE),
        place.desk.tokens("nobody", None, 1, include_unusable=True),
        place.desk.revoke(place.operator, TokenId(f"tok_{nobody}")),
    ):
        with pytest.raises(NotFound):
            await attempt
