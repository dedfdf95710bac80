"""Watching the inbox: what is recorded arrives, whoever announced it."""

import asyncio
from pathlib import Path

import pytest

from tests.storage.builders import asked, now
from tyrum_gateway.app import approval_watch
from tyrum_gateway.app.approval_watch import ApprovalSignal, CaughtUp, watch_approvals
from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.storage import SqliteStore


async def test_a_watch_that_nobody_wakes_does_not_fall_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads on by itself: else all that a night of other work records stands before the next question."""
    monkeypatch.setattr(approval_watch, "LOOK_SECONDS", 0.02)
    async with await SqliteStore.open(tmp_path / "tyrum.sqlite3") as store, asyncio.timeout(20):
        watch = watch_approvals(store, store.audit, ApprovalSignal(), None)
        assert await anext(watch) == CaughtUp()
        reading = asyncio.ensure_future(anext(watch))
        _, approval = await asked(store)
        entry = AuditEntry("approval.requested", "kernel", approval.approval_id, {})
        await store.record((entry,), now())
        assert await reading == approval
        await watch.aclose()
