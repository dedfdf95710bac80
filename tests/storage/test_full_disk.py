"""A disk without room halves nothing: what cannot be written is refused by the name of its file."""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from tests.storage.builders import held_writer, message, now, running, say
from tests.support.small_disk import SmallDisk, mounted
from tyrum_gateway.app import engine as engine_module
from tyrum_gateway.app.agent import Agent, EngineLimits
from tyrum_gateway.app.alarms import MEANINGS, Alarm, Alarms
from tyrum_gateway.app.audit_heads import HeadKeeper
from tyrum_gateway.app.engine import Engine
from tyrum_gateway.app.streams import Streams
from tyrum_gateway.bootstrap.evidence import Anchor
from tyrum_gateway.bootstrap.state_directory import StateDirectory
from tyrum_gateway.bootstrap.system import RandomIds, SystemClock
from tyrum_gateway.domain.audit import SignedHead
from tyrum_gateway.domain.commit import AuditEntry, Commit, Committed
from tyrum_gateway.domain.errors import DiskFull, StateUnusable, translate
from tyrum_gateway.domain.model import ModelEvent, Prompt, StepEnd, TextDelta
from tyrum_gateway.domain.policy import Bundle
from tyrum_gateway.domain.states import TurnState
from tyrum_gateway.domain.transcript import Event
from tyrum_gateway.domain.turn import Turn, TurnLimits
from tyrum_gateway.storage import SqliteStore, schema
from tyrum_gateway.storage.audit_file import verify_database
from tyrum_gateway.storage.audit_heads import HeadsFile
from tyrum_gateway.storage.audit_key import SigningKey

PATIENCE = 30.0
LIMITS = EngineLimits(
    turn=TurnLimits(steps=4, attempts=3),
    step_time=timedelta(seconds=PATIENCE),
    turn_time=timedelta(seconds=PATIENCE),
    approval_expiry=timedelta(hours=1),
    queued_per_conversation=16,
    unfinished_per_principal=256,
    concurrent_turns=2,
)
TOKEN = "t" * 43


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """4 MiB."""
    with mounted(tmp_path / "disk", 4) as disk:
        yield disk


class Watched(SqliteStore):
    """A store of which is known when it has refused a transition."""

    refused: StateUnusable | None = None

    async def commit(self, commit: Commit) -> Committed:
        """As the store does."""
        try:
            return await super().commit(commit)
        except StateUnusable as error:
            self.refused = error
            raise


class Gated:
    """A model that answers when it is let."""

    def __init__(self) -> None:
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    async def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Wait, then answer."""
        del prompt
        self.asked.set()
        await self.may.wait()
        yield TextDelta("Said.")
        yield StepEnd(())


def head(number: int) -> SignedHead:
    """A head; nobody looks whether it is true."""
    return SignedHead(number, "f" * 64, number, "ed25519:0", "s" * 88)


async def test_a_turn_on_a_full_disk_stays_whole_and_goes_on_when_there_is_room(
    small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of what does not fit is there, new messages are refused and told why; then all goes on."""
    monkeypatch.setattr(engine_module, "PAUSE", 0.05)
    database = small_disk.path / "state" / "tyrum.sqlite3"
    model, streams, clock, alarms = Gated(), Streams(), SystemClock(), Alarms()
    async with asyncio.timeout(PATIENCE), await Watched.open(database) as store:
        anchor = Anchor(small_disk.path / "state" / "audit", None)
        keeper = HeadKeeper(
            store=store,
            audit=store.audit,
            heads=anchor.file,
            last=anchor.last,
            signer=anchor,
            clock=clock,
            activity=lambda: store.statistics.commits,
            place="heads",
        )
        await keeper.check()
        await keeper.sign_or_fail()
        engine = Engine(
            agent=Agent("", model, Bundle("default", ()), {}),
            store=store,
            clock=clock,
            ids=RandomIds(),
            streams=streams,
            limits=LIMITS,
            alarms=alarms,
        )
        started, stopping = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(engine.run(started, stopping))
            await started.wait()
            turn = (await store.accept(message())).turn
            engine.wake(turn)
            await model.asked.wait()
            before, events = await _stored(store, turn)
            small_disk.fill(database.with_name(f"{database.name}-wal"))
            with pytest.raises(StateUnusable, match=re.escape(str(database))) as caught:
                await store.accept(message())
            assert not small_disk.mounted or translate(caught.value).reason == "QUOTA"
            with pytest.raises(StateUnusable):
                await store.rewrite()
            model.may.set()
            while store.refused is None:  # noqa: ASYNC110 - the store tells nobody
                await asyncio.sleep(0.01)
            assert str(database) in store.refused.public
            assert not small_disk.mounted or alarms.problems == [MEANINGS[Alarm.DISK_FULL]]
            await keeper.sign()  # a last block may hold the head, or it is reported: nothing is raised
            assert await _stored(store, turn) == (before, events)
            small_disk.free()
            await store.rewrite()
            while not (await _stored(store, turn))[0].state.final:  # noqa: ASYNC110 - in the database
                await asyncio.sleep(0.01)
            stopping.set()
        ended, events = await _stored(store, turn)
        assert ended.state is TurnState.COMPLETED
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert (await store.accept(message())).turn.version == 1
        assert await keeper.sign()
    report = verify_database(database, anchor.file.path, small_disk.path / "state" / "audit" / "key.pub")
    assert report.intact
    assert report.unanchored == 0


async def _stored(store: SqliteStore, turn: Turn) -> tuple[Turn, Sequence[Event]]:
    return (await store.turn(turn.turn_id)).turn, await store.events(turn.conversation_id, 0, 100)


async def test_a_gateway_that_starts_on_a_full_disk_says_so_and_starts_when_there_is_room(
    small_disk: SmallDisk,
) -> None:
    """Neither database nor token nor key is left behind in part: the next start makes them."""
    state = StateDirectory.prepare(small_disk.path / "state")
    small_disk.fill(state.database)
    with pytest.raises(StateUnusable, match=re.escape(str(state.database))):
        await SqliteStore.open(state.database)
    with pytest.raises(StateUnusable, match=re.escape(str(state.token_file))):
        state.operator_token(lambda: TOKEN)
    assert not state.token_file.exists()
    with pytest.raises(StateUnusable, match=re.escape(str(state.audit / "key"))):
        SigningKey.prepare(state.audit)
    assert not (state.audit / "key").exists()
    small_disk.free()
    assert state.operator_token(lambda: TOKEN) == TOKEN
    assert state.operator_token(lambda: "another") == TOKEN
    SigningKey.prepare(state.audit)
    async with await SqliteStore.open(state.database) as store:
        await store.record((AuditEntry("a.b", "kernel", "gateway", {}),), now())


async def test_a_migration_on_a_full_disk_says_so_and_leaves_no_empty_backup(
    small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was begun of the copy is removed, and the database is as it was."""
    database = small_disk.path / "tyrum.sqlite3"
    async with await SqliteStore.open(database):
        pass
    before = database.read_bytes()
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    small_disk.fill(database.with_name("copy"))
    with pytest.raises(StateUnusable, match=r"full|cannot be") as refused:
        await SqliteStore.open(database)
    assert not small_disk.mounted or isinstance(refused.value, DiskFull)
    small_disk.free()
    assert [path.name for path in small_disk.path.iterdir() if "backup" in path.name] == []
    assert database.read_bytes() == before


async def test_a_disk_that_fills_up_within_a_transaction_is_named_as_the_reason(
    small_disk: SmallDisk,
) -> None:
    """Pages that find no room before the commit end the transaction: all hear why, and nothing is changed."""
    database = small_disk.path / "tyrum.sqlite3"
    async with await SqliteStore.open(database) as store:
        turns = await running(store), await running(store)
        await store._writer.run(lambda transaction: transaction.connection.execute("PRAGMA cache_size=16"))
        small_disk.fill(database.with_name(f"{database.name}-wal"))
        async with held_writer(store):
            commits = [asyncio.ensure_future(store.commit(say(turn, "x" * 1_000_000))) for turn in turns]
            await asyncio.sleep(0)
        for refused in await asyncio.gather(*commits, return_exceptions=True):
            assert isinstance(refused, StateUnusable)
            assert "savepoint" not in refused.public
            assert not small_disk.mounted or translate(refused).reason == "QUOTA"
        small_disk.free()
        for turn in turns:
            assert len((await store.commit(say(turn, "x" * 1_000))).events) == 1


def test_heads_that_did_not_fit_hide_none_that_did(small_disk: SmallDisk) -> None:
    """A head that was refused, or cut off in its line, is not there; those before and after it are."""
    file = HeadsFile(small_disk.path / "heads.jsonl")
    file.append(head(1))
    small_disk.fill(file.path)
    kept = [1]
    with pytest.raises(OSError, match=r"No space|too large|only a part"):
        _append_all(file, kept)
    assert len(kept) < 50
    small_disk.free()
    file.append(head(100))
    assert [found.sequence for found in file.read()] == [*kept, 100]
    assert file.last() == head(100)


def _append_all(file: HeadsFile, kept: list[int]) -> None:
    for number in range(2, 100):  # what is left of the last block takes some
        file.append(head(number))
        kept.append(number)


async def test_the_connections_in_use_have_the_settings_that_power_loss_needs(store: SqliteStore) -> None:
    """Asked on the very connection that writes: a log, synced at each commit; readers see the same log."""
    writing = await store._writer.run(
        lambda transaction: [
            transaction.connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous")
        ]
    )
    assert writing == ["wal", 2]
    async with store._reads._connection() as driver:
        async with driver.execute("PRAGMA journal_mode") as cursor:
            assert tuple(await cursor.fetchone() or ()) == ("wal",)
        async with driver.execute("PRAGMA query_only") as cursor:
            assert tuple(await cursor.fetchone() or ()) == (1,)


def test_database_token_key_and_heads_are_synced_before_they_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content is synced before a file has its name, its directory after that, a head when it is added."""
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        fsync(descriptor)
        name = "draft" if path.name.startswith(".") else path.name
        synced.append(f"{name}/" if path.is_dir() else name)

    monkeypatch.setattr(os, "fsync", noted)
    state = StateDirectory.prepare(tmp_path / "above" / "state")
    assert synced == [f"{tmp_path.name}/", "above/"], "what leads to the directory"
    synced.clear()
    schema.prepare(state.database)
    assert synced == ["state/"], "the rest is SQLite's"
    synced.clear()
    state.operator_token(lambda: TOKEN)
    assert synced == ["draft", "state/"]
    synced.clear()
    SigningKey.prepare(state.audit)
    assert synced == ["state/", "draft", "audit/", "draft", "audit/"]
    synced.clear()
    file = HeadsFile(state.audit / "heads.jsonl")
    file.append(head(1))
    file.append(head(2))
    assert synced == ["heads.jsonl", "audit/", "heads.jsonl"]
