"""Changes of rights that meet others: streams and records go by what holds, not by what was read before."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tyrum_gateway.app.identity import Identity, new_token
from tyrum_gateway.app.principals import DEFAULT_LIFE, PrincipalDesk
from tyrum_gateway.app.sessions import Sessions
from tyrum_gateway.bootstrap.system import RandomIds, SystemClock
from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.errors import NotAuthenticated, NotAuthorized, TyrumError
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


class AskedClock(SystemClock):
    """Tells that somebody wanted to know the time, as who is about to change something does."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def now(self) -> datetime:
        """See `Clock.now`."""
        self.asked.set()
        return super().now()


@pytest.mark.parametrize("change", ["revoke", "set_roles", "disable"])
async def test_streams_end_also_when_who_took_the_right_away_did_not_wait(
    tmp_path: Path, change: str
) -> None:
    """A change whose caller hangs up before the answer ends streams and remembered tokens all the same."""
    ids, clock, sessions = RandomIds(), AskedClock(), Sessions(SystemClock())
    async with await SqliteStore.open(tmp_path / "tyrum.sqlite3") as store, asyncio.timeout(20):
        identity = Identity(store=store, clock=SystemClock(), ids=ids)
        secret = new_token()
        await identity.ensure("operator", list(Role), secret)
        operator = await identity.authenticate(secret)
        desk = PrincipalDesk(
            store=store.principals, clock=clock, ids=ids, identity=identity, sessions=sessions
        )
        await desk.create(operator, "anna", BOTH)
        hers, token = await desk.issue(operator, "anna", "laptop", DEFAULT_LIFE)
        anna = await identity.authenticate(hers)
        opened = asyncio.Event()

        async def stream() -> None:
            async with sessions.during(anna):
                opened.set()
                await asyncio.Event().wait()

        running = asyncio.create_task(stream())
        await opened.wait()
        clock.asked.clear()
        changes: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
            "revoke": lambda: desk.revoke(operator, token.token_id),
            "set_roles": lambda: desk.set_roles(operator, "anna", CHAT),
            "disable": lambda: desk.disable(operator, "anna"),
        }
        asking = asyncio.create_task(changes[change]())
        await clock.asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        with pytest.raises(TyrumError):
            await running
        if change == "set_roles":
            assert (await identity.authenticate(hers)).roles == CHAT
        else:
            with pytest.raises(NotAuthenticated):
                await identity.authenticate(hers)
