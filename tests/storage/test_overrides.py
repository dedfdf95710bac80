"""Standing permissions in the database: with their answer or not at all, read back as written, ended once."""

import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.storage.builders import PRINCIPAL, asked, new, now, resolved, running, say
from tyrum_gateway.domain.approval import Approval
from tyrum_gateway.domain.commit import AuditEntry, Commit
from tyrum_gateway.domain.errors import NotFound, PermissionEnded, StateUnusable, VersionConflict
from tyrum_gateway.domain.ids import OverrideId
from tyrum_gateway.domain.override import Override, revoke
from tyrum_gateway.domain.policy import AnyArgument, Decision, Effect, Literal, Prefix, Rule
from tyrum_gateway.domain.states import TurnState
from tyrum_gateway.domain.turn import Turn
from tyrum_gateway.storage import SqliteStore, overrides

REVOKED = AuditEntry("override.revoked", PRINCIPAL, "over", {})


def permission(approval: Approval, *, agent: str = "default", lasts: timedelta | None = None) -> Override:
    """Make an override with something in every field."""
    override_id = new(OverrideId)
    return Override(
        override_id=override_id,
        agent=agent,
        rule=Rule(
            rule_id=override_id,
            decision=Decision.ALLOW,
            author="Alice",
            reason="because",
            tool="process.run",
            effect=Effect.STATE_CHANGING,
            program="/usr/bin/touch",
            argv=(Literal(""), Literal("ü\n"), Prefix("a"), AnyArgument()),
            rest=True,
            cwd="docs",
            env=frozenset({"LANG", "TZ"}),
            secrets=frozenset({"KEY"}),
        ),
        summary="touch",
        approval_id=approval.approval_id,
        created_by=PRINCIPAL,
        created_name="Alice",
        created_method="token",
        created_from="unix uid 7",
        created_reason="fine",
        created_at=now(),
        expires_at=now() + (lasts or timedelta(days=1)),
    )


def answering(turn: Turn, approval: Approval, override: Override) -> Commit:
    """The commit of an answer that permits for good."""
    answered = resolved(approval)
    assert answered.resolution is not None
    answered = replace(
        answered, resolution=replace(answered.resolution, override_id=override.override_id, origin="here")
    )
    return Commit(replace(turn, state=TurnState.RUNNING), now(), resolved=(answered,), overrides=(override,))


async def permitted(
    store: SqliteStore, *, agent: str = "default", lasts: timedelta | None = None
) -> Override:
    """Store an override."""
    turn, approval = await asked(store)
    override = permission(approval, agent=agent, lasts=lasts)
    await store.commit(answering(turn, approval, override))
    return override


async def test_it_is_read_back_as_it_was_written(store: SqliteStore) -> None:
    """Every field survives, and the answer names the override and its origin."""
    turn, approval = await asked(store)
    override = permission(approval)
    await store.commit(answering(turn, approval, override))
    assert await store.overrides.get(override.override_id) == override
    resolution = (await store.approval(approval.approval_id)).resolution
    assert resolution is not None
    assert (resolution.override_id, resolution.origin) == (override.override_id, "here")


async def test_without_its_answer_it_does_not_exist(store: SqliteStore) -> None:
    """An answer that comes too late leaves no permission: both are one commit."""
    turn, approval = await asked(store)
    first, second = permission(approval), permission(approval)
    await store.commit(answering(turn, approval, first))
    with pytest.raises(VersionConflict):
        await store.commit(answering(turn, approval, second))
    assert [item.override_id for item in await store.overrides.page(None, 10)] == [first.override_id]


async def test_an_agent_has_its_own_and_only_those_that_hold(store: SqliteStore) -> None:
    """Revoked and expired overrides, and those of other agents, are not read; newest come first."""
    first, second = await permitted(store), await permitted(store)
    other = await permitted(store, agent="other")
    over = await permitted(store, lasts=timedelta(milliseconds=1))
    gone = await permitted(store)
    await store.overrides.revoke(revoke(gone, by="Bob", reason="", now=now()), REVOKED)
    later = now() + timedelta(seconds=1)
    held = await store.overrides.of_agent("default", later, 10)
    assert [item.override_id for item in held] == sorted([second.override_id, first.override_id])[::-1]
    assert await store.overrides.of_agent("default", later, 1) == held[:1]
    assert [item.override_id for item in await store.overrides.of_agent("other", later, 10)] == [
        other.override_id
    ]
    everything = [item.override_id for item in await store.overrides.page(None, 10)]
    assert set(everything) == {item.override_id for item in (first, second, other, over, gone)}
    pages = [await store.overrides.page(before, 2) for before in (None, everything[1], everything[3])]
    assert [item.override_id for page in pages for item in page] == everything


async def test_the_first_revocation_stays_and_is_audited_once(store: SqliteStore, database: Path) -> None:
    """Revoking again changes neither the record nor the audit log; what never existed is told."""
    override = await permitted(store)
    first = revoke(override, by="Bob", reason="no more", now=now())
    assert await store.overrides.revoke(first, REVOKED) == first
    second = revoke(override, by="Eve", reason="mine", now=now())
    assert await store.overrides.revoke(second, REVOKED) == first
    with pytest.raises(NotFound):
        await store.overrides.revoke(replace(first, override_id=new(OverrideId)), REVOKED)
    with closing(sqlite3.connect(database)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM audit WHERE kind = 'override.revoked'").fetchone()
    assert count == 1


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "[]",
        "{}",
        "json_set(rule, '$.argv', json('[{}]'))",
        "json_set(rule, '$.argv', json('[{\"prefix\":\"\"}]'))",
        "json_set(rule, '$.program', 1)",
        "json_set(rule, '$.program', null)",
        "json_remove(rule, '$.cwd')",
    ],
)
async def test_a_damaged_rule_permits_nothing(store: SqliteStore, database: Path, rule: str) -> None:
    """A rule that is not of the form that is written is refused by name, never guessed."""
    override = await permitted(store)
    expression = rule if rule.startswith("json") else f"'{rule}'"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(f"UPDATE overrides SET rule = {expression}")  # noqa: S608 - of this file
    with pytest.raises(StateUnusable, match=override.override_id):
        await store.overrides.of_agent("default", now(), 10)


@pytest.mark.parametrize("name", ["ONE", "OF_AGENT", "NEWEST", "BEFORE"])
async def test_every_read_of_overrides_uses_an_index(store: SqliteStore, database: Path, name: str) -> None:
    """No reading statement walks or sorts the table; the newest are read from the end of an index."""
    del store
    statement = getattr(overrides, name)
    parameters = dict.fromkeys(re.findall(r":(\w+)", statement.sql), 1) | dict(statement.constants)
    with closing(sqlite3.connect(database)) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", parameters)]
    assert not [step for step in plan if "TEMP B-TREE" in step or "AUTOMATIC" in step]
    walks = [step for step in plan if step.startswith("SCAN")]
    assert not walks or (name == "NEWEST" and all("USING INDEX" in step for step in walks))


@pytest.mark.parametrize("end", ["none", "revoked", "expired", "unknown"])
async def test_an_operation_begins_only_on_a_permission_that_holds(store: SqliteStore, end: str) -> None:
    """A commit that relies on a permission is refused whole when that has ended by the time it is applied."""
    override = await permitted(store, lasts=timedelta(milliseconds=1) if end == "expired" else None)
    relied = new(OverrideId) if end == "unknown" else override.override_id
    if end == "revoked":
        await store.overrides.revoke(revoke(override, by="Bob", reason="", now=now()), REVOKED)
    turn = await running(store)
    change = replace(say(turn, "begun"), at=now() + timedelta(seconds=1), relies_on=(relied,))
    before = await store.events(turn.conversation_id, 0, 10)
    if end == "none":
        await store.commit(change)
        assert len(await store.events(turn.conversation_id, 0, 10)) == len(before) + 1
        return
    with pytest.raises(PermissionEnded):
        await store.commit(change)
    assert await store.events(turn.conversation_id, 0, 10) == before
    assert (await store.turn(turn.turn_id)).turn == turn
