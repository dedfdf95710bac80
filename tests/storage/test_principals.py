"""Principals and their tokens."""

import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from tests.storage.builders import new, now
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.domain.ids import PrincipalId
from tyrum_gateway.domain.principal import Principal, Role
from tyrum_gateway.storage import SqliteStore
from tyrum_gateway.storage.times import to_microseconds


async def test_a_token_names_its_principal(store: SqliteStore) -> None:
    """A principal is found by the digest of its token, and by nothing else."""
    principal_id = new(PrincipalId)
    assert await store.ensure_principal(principal_id, "op", ["chat", "approver"], "aa", now()) == principal_id
    roles = frozenset({Role.CHAT, Role.APPROVER})
    found = await store.principal_by_token("aa", now())
    assert found is not None
    assert found == Principal(principal_id, "op", roles, "token", token_id=found.token_id)
    assert await store.principal_by_token("ab", now()) is None


async def test_an_existing_principal_keeps_identity_and_roles(database: Path) -> None:
    """Ensuring a principal again keeps id and roles; the file's new token replaces the old one for ever."""
    first = new(PrincipalId)
    async with await SqliteStore.open(database) as store:
        await store.ensure_principal(first, "op", ["chat"], "aa", now())
    async with await SqliteStore.open(database) as store:
        assert await store.ensure_principal(new(PrincipalId), "op", ["admin"], "bb", now()) == first
        assert await store.principal_by_token("aa", now()) is None
        found = await store.principal_by_token("bb", now())
        assert found is not None
        assert found.roles == {Role.CHAT}
        await store.ensure_principal(first, "op", ["chat"], "aa", now())
        assert await store.principal_by_token("aa", now()) is None


async def test_expired_tokens_are_nobodys(store: SqliteStore, database: Path) -> None:
    """A token is good until its expiry and not at it."""
    await store.ensure_principal(new(PrincipalId), "op", ["chat"], "aa", now())
    moment = now()
    other = sqlite3.connect(database)
    other.execute("UPDATE tokens SET expires_at = ?", (to_microseconds(moment),))
    other.commit()
    other.close()
    assert await store.principal_by_token("aa", moment) is None
    assert await store.principal_by_token("aa", moment - timedelta(microseconds=1)) is not None


async def test_a_token_has_one_owner(store: SqliteStore) -> None:
    """A token of one principal is not given to another; the start that tries says what to do."""
    owner = new(PrincipalId)
    await store.ensure_principal(owner, "op", ["chat"], "aa", now())
    with pytest.raises(StateUnusable, match="delete the file to get a new one"):
        await store.ensure_principal(new(PrincipalId), "intruder", ["admin"], "aa", now())
    found = await store.principal_by_token("aa", now())
    assert found is not None
    assert found.principal_id == owner
