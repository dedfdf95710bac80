"""The inbox: what is recorded arrives, whoever announced it, and no more is read than is shown."""

import asyncio
from pathlib import Path

import pytest

from tests.storage.builders import asked, now
from tyrum_gateway.app import approval_watch
from tyrum_gateway.app.approval_watch import ApprovalSignal, CaughtUp, watch_approvals
from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.ids import ApprovalId
from tyrum_gateway.rpc import approvals, convert
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


async def test_no_more_questions_are_read_than_a_page_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred large ones at once would take more memory than all else; in parts they come as well."""
    monkeypatch.setattr(approvals, "ASKED", 2)
    async with await SqliteStore.open(tmp_path / "tyrum.sqlite3") as store, asyncio.timeout(20):
        waiting = sorted([(await asked(store))[1].approval_id for _ in range(5)])

        async def read(after: ApprovalId | None, most: int) -> list[ApprovalId]:
            found = await approvals.enough(store, None, after, most, include_resolved=False)
            return [item.approval_id for item in found]

        assert await read(None, 10) == waiting
        assert await read(None, 3) == waiting[:3]
        assert await read(waiting[2], 10) == waiting[3:]
        monkeypatch.setattr(convert, "MAX_PAGE", 1)
        assert await read(None, 10) == waiting[:2]
