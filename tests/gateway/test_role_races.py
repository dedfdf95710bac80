"""Role changes that meet: streams and records go by what holds, not by what somebody read before."""

import asyncio
import json
from pathlib import Path

import pytest

from tyrum_gateway.app.sessions import Sessions
from tyrum_gateway.bootstrap.system import RandomIds, SystemClock
from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.errors import NotAuthorized
from tyrum_gateway.domain.ids import PrincipalId
from tyrum_gateway.domain.principal import Account, Principal, Role
from tyrum_gateway.storage import SqliteStore

CHAT = frozenset({Role.CHAT})
BOTH = CHAT | {Role.APPROVER}


async def test_a_stream_ends_by_the_roles_it_was_opened_with() -> None:
    """A stream that was opened with more roles than are left ends, whatever the change was made from."""
    sessions = Sessions(SystemClock())
    who = RandomIds().new(PrincipalId)
    opened = asyncio.Event()

    async def stream() -> None:
        async with sessions.during(Principal(who, "anna", BOTH, "token")):
            opened.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(stream())
    await opened.wait()
    sessions.demote(who, BOTH, NotAuthorized("kept"))
    await asyncio.sleep(0)
    assert not running.done()
    sessions.demote(who, CHAT, NotAuthorized("taken"))
    with pytest.raises(NotAuthorized, match="taken"):
        async with asyncio.timeout(20):
            await running
    assert len(sessions) == 0


async def test_the_record_of_a_role_change_names_the_roles_that_were_replaced(tmp_path: Path) -> None:
    """`former` is what the very transaction found, also when whoever asked had read something older."""
    clock, ids = SystemClock(), RandomIds()
    async with await SqliteStore.open(tmp_path / "tyrum.sqlite3") as store:
        await store.ensure_principal(ids.new(PrincipalId), "operator", list(Role), "0" * 64, clock.now())
        anna = Account(ids.new(PrincipalId), "anna", BOTH, clock.now())
        await store.principals.create(anna, AuditEntry("principal.created", "kernel", anna.principal_id, {}))
        stale = AuditEntry("principal.roles_set", "kernel", anna.principal_id, {"former": []})
        await store.principals.set_roles(anna.principal_id, CHAT, clock.now(), stale)
        (*_, row) = await store.audit.rows(0, 100)
        assert json.loads(row.details)["former"] == ["approver", "chat"]
