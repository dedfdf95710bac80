"""The audit log of a real store: chained in the same commit, verified from its file, anchored by heads."""

import asyncio
import base64
import json
import shutil
import sqlite3
import stat
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.storage.builders import begin, call, end, finish, message, new, now, running
from tests.support import toolchain
from tyrum_gateway.app import audit_heads
from tyrum_gateway.app.alarms import MEANINGS, Alarm, Alarms
from tyrum_gateway.app.audit_heads import HeadKeeper
from tyrum_gateway.bootstrap.evidence import Anchor, require_database
from tyrum_gateway.bootstrap.system import SystemClock
from tyrum_gateway.domain.audit import SignedHead, signed_bytes
from tyrum_gateway.domain.audit_verify import Finding, Report
from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.errors import StateUnusable, VersionConflict
from tyrum_gateway.domain.ids import PrincipalId
from tyrum_gateway.domain.states import CallState
from tyrum_gateway.storage import SqliteStore
from tyrum_gateway.storage.audit_file import exported_rows, read_key, verify_database
from tyrum_gateway.storage.audit_heads import HeadsFile, encode
from tyrum_gateway.storage.audit_key import SigningKey

COLUMNS = {
    "at": "UPDATE audit SET at = 7 WHERE sequence = 4",
    "kind": "UPDATE audit SET kind = 'x' WHERE sequence = 4",
    "actor": "UPDATE audit SET actor = 'x' WHERE sequence = 4",
    "subject": "UPDATE audit SET subject = 'x' WHERE sequence = 4",
    "details": "UPDATE audit SET details = '{}' WHERE sequence = 4",
    "previous": "UPDATE audit SET previous = 'x' WHERE sequence = 4",
    "hash": "UPDATE audit SET hash = 'x' WHERE sequence = 4",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A store with the place of its heads."""

    store: SqliteStore
    database: Path
    audit: Path

    def keeper(self, heads: Path | None = None, alarms: Alarms | None = None) -> HeadKeeper:
        """Make the keeper of a gateway that starts."""
        anchor = Anchor(self.audit, heads)
        return HeadKeeper(
            store=self.store,
            audit=self.store.audit,
            heads=anchor.file,
            last=anchor.last,
            signer=anchor,
            clock=SystemClock(),
            activity=lambda: self.store.statistics.commits,
            place=str(anchor.file.path),
            alarms=alarms,
        )

    def verify(self, database: Path | None = None) -> Report:
        """Verify from the files."""
        return verify_database(database or self.database, self.audit / "heads.jsonl", self.audit / "key.pub")


@pytest.fixture
async def place(store: SqliteStore, database: Path) -> Place:
    """A store in which one head was signed over the rows of three turns, and one more turn ran since."""
    place = Place(store, database, database.parent / "audit")
    keeper = place.keeper()
    await keeper.check()
    for _ in range(3):
        await a_turn(store)
    assert await keeper.sign()
    await a_turn(store)
    return place


async def a_turn(store: SqliteStore) -> None:
    """Write the rows of a turn."""
    await store.accept(message())
    await store.record([AuditEntry("call.ended", "kernel", "call_x", {"n": 1})], now())


def tampered(database: Path, *statements: str) -> Path:
    """Copy a database with its log, and change the copy as its owner can."""
    copy = database.with_name("copy.db")
    shutil.copyfile(database, copy)
    if (log := database.with_name(f"{database.name}-wal")).exists():
        shutil.copyfile(log, copy.with_name(f"{copy.name}-wal"))
    connection = sqlite3.connect(copy)
    for trigger in ("audit_no_update", "audit_no_delete"):
        connection.execute(f"DROP TRIGGER {trigger}")
    for statement in statements:
        assert connection.execute(statement).rowcount
    connection.commit()
    connection.close()
    return copy


async def test_a_live_log_verifies_and_its_newest_rows_are_unanchored(place: Place) -> None:
    """The file of an open store verifies without disturbing it: six rows anchored, two not yet."""
    report = place.verify()
    assert (report.intact, report.rows, report.anchored, report.unanchored) == (True, 8, 6, 2)
    await a_turn(place.store)
    assert place.verify().rows == 10


async def test_a_log_at_rest_verifies_and_no_file_appears_beside_it(place: Place) -> None:
    """After the gateway stopped, verifying works on the file alone and leaves nothing in the directory."""
    await place.store.close()
    before = sorted(place.database.parent.iterdir())
    assert place.verify().intact
    assert sorted(place.database.parent.iterdir()) == before


@pytest.mark.parametrize("column", COLUMNS)
async def test_any_edited_column_is_found_in_the_file(place: Place, column: str) -> None:
    """Whichever column of an anchored row somebody edits in the database, the row is named."""
    copy = tampered(place.database, COLUMNS[column])
    report = place.verify(copy)
    assert not report.intact
    assert {problem.first for problem in report.problems} == {4}
    assert report.anchored == 0


@pytest.mark.parametrize(
    ("statements", "finding", "first"),
    [
        pytest.param(["DELETE FROM audit WHERE sequence = 1"], Finding.MISSING, 1, id="first row"),
        pytest.param(["DELETE FROM audit WHERE sequence = 3"], Finding.MISSING, 3, id="row in the middle"),
        pytest.param(["DELETE FROM audit WHERE sequence >= 6"], Finding.TRUNCATED, 6, id="anchored end"),
        pytest.param(
            [
                "UPDATE audit SET sequence = -sequence WHERE sequence > 3",
                "UPDATE audit SET sequence = 1 - sequence WHERE sequence < 0",
                "INSERT INTO audit SELECT 4, at, kind, actor, subject, details, previous, hash FROM audit "
                "WHERE sequence = 3",
            ],
            Finding.MOVED,
            4,
            id="inserted row",
        ),
        pytest.param(
            [
                "UPDATE audit SET sequence = 99 WHERE sequence = 2",
                "UPDATE audit SET sequence = 2 WHERE sequence = 5",
                "UPDATE audit SET sequence = 5 WHERE sequence = 99",
            ],
            Finding.MOVED,
            2,
            id="swapped rows",
        ),
    ],
)
async def test_what_was_done_to_the_table_is_named(
    place: Place, statements: list[str], finding: Finding, first: int
) -> None:
    """Deleted, inserted and swapped rows of a database are named by number."""
    report = place.verify(tampered(place.database, *statements))
    assert (finding, first) in {(problem.finding, problem.first) for problem in report.problems}


async def test_a_rollback_takes_its_audit_rows_along(store: SqliteStore) -> None:
    """A commit that loses its comparison leaves no row in the chain, and the next row fits the one before."""
    turn = await running(store)
    before = await store.audit.head()
    stale = replace(finish(replace(turn, version=turn.version - 1)), audit=(entry("lost"),))
    with pytest.raises(VersionConflict):
        await store.commit(stale)
    assert await store.audit.head() == before
    await store.commit(replace(finish(turn), audit=(entry("kept"),)))
    rows = await store.audit.rows(0, 100)
    assert [row.kind for row in rows][-1] == "kept"
    assert [row.previous for row in rows[1:]] == [row.hash for row in rows[:-1]]


def entry(kind: str) -> AuditEntry:
    """Make a fact."""
    return AuditEntry(kind, "kernel", "turn_x", {})


async def test_the_log_is_read_by_number_and_by_subject(store: SqliteStore) -> None:
    """Rows are found after or before a number, of all subjects or of one."""
    for number in range(6):
        await store.record([AuditEntry("k", "kernel", f"s{number % 2}", {"n": number})], now())
    audit = store.audit
    assert [row.sequence for row in await audit.rows(2, 3)] == [3, 4, 5]
    assert [row.sequence for row in await audit.rows(1, 9, subject="s0")] == [3, 5]
    assert [row.sequence for row in await audit.rows_before(6, 2)] == [5, 4]
    assert [row.sequence for row in await audit.rows_before(6, 9, subject="s1")] == [4, 2]
    assert await audit.hash_of(7) is None
    head = await audit.head()
    assert head is not None
    assert head[1] == await audit.hash_of(6)


async def test_principals_and_their_tokens_are_recorded(store: SqliteStore) -> None:
    """Creating a principal and replacing its token leave rows without its digest; a restart leaves none."""
    owner = new(PrincipalId)
    await store.ensure_principal(owner, "op", ["chat"], "aa" * 32, now())
    await store.ensure_principal(owner, "op", ["chat"], "aa" * 32, now())
    await store.ensure_principal(owner, "op", ["chat"], "bb" * 32, now())
    rows = await store.audit.rows(0, 100)
    assert [row.kind for row in rows] == ["principal.created", "token.issued", "token.issued"]
    assert rows[0].subject == owner
    assert json.loads(rows[0].details) == {"name": "op", "roles": ["chat"]}
    assert not [row for row in rows if "aa" * 32 in str(row) or "bb" * 32 in str(row)]


async def test_a_start_on_an_older_database_is_refused(place: Place) -> None:
    """A database that lacks the row under the last head, or holds another one, is named and not used."""
    await place.store.close()
    anchor = Anchor(place.audit, None)
    for statement in (
        "DELETE FROM audit WHERE sequence > 4",
        "UPDATE audit SET hash = 'x' WHERE sequence = 6",
    ):
        copy = tampered(place.database, statement)
        async with await SqliteStore.open(copy) as store:
            rows = await store.audit.rows(0, 100)
            with pytest.raises(StateUnusable, match=r"audit row 6, over which a head was signed") as refused:
                await Place(store, copy, place.audit).keeper().check()
            assert str(anchor.file.path) in refused.value.public
            assert await store.audit.rows(0, 100) == rows, "nothing is written"
        copy.unlink()


async def test_a_start_without_its_database_makes_none(place: Place) -> None:
    """Where heads were signed, a database that is missing was lost or is not mounted: no new one is begun."""
    await place.store.close()
    place.database.unlink()
    with pytest.raises(StateUnusable, match=r"is missing, and .* has a head over its audit row 6"):
        require_database(place.database, place.audit, None)
    assert not place.database.exists()
    (place.audit / "heads.jsonl").rename(place.audit / "heads.jsonl.old")
    require_database(place.database, place.audit, None)


async def test_heads_that_are_taken_away_while_a_gateway_runs_raise_an_alarm(place: Place) -> None:
    """Removed, replaced or cut short: no head is added, nothing is begun anew; put back, all goes on."""
    alarms = Alarms()
    keeper = place.keeper(alarms=alarms)
    await keeper.check()
    await place.store.record((AuditEntry("a.b", "kernel", "gateway", {}),), now())
    assert await keeper.sign()
    await keeper.look()
    assert alarms.problems == []
    away = place.audit.rename(place.audit.with_name("away"))
    await keeper.look()
    assert alarms.problems == [MEANINGS[Alarm.AUDIT_HEADS]]
    await place.store.record((AuditEntry("a.b", "kernel", "gateway", {}),), now())
    assert not await keeper.sign()
    assert not place.audit.exists()
    away.rename(place.audit)
    assert await keeper.sign()
    assert alarms.problems == []
    (place.audit / "heads.jsonl").write_bytes(b"")
    await keeper.look()
    assert alarms.problems == [MEANINGS[Alarm.AUDIT_HEADS]]


async def test_heads_that_were_moved_away_leave_a_row(place: Place) -> None:
    """Going on without the heads is possible and recorded: the new anchoring says how many rows it found."""
    (place.audit / "heads.jsonl").rename(place.audit / "heads.jsonl.old")
    keeper = place.keeper()
    await keeper.check()
    (row,) = await place.store.audit.rows(8, 100)
    assert (row.kind, json.loads(row.details)["rows_before"]) == ("audit.heads_begun", 8)
    assert await keeper.sign()
    assert place.verify().anchored == 9


@pytest.mark.parametrize(("commits", "seconds"), [(3, 3600.0), (1_000_000, 0.05)], ids=["many", "old"])
async def test_heads_are_signed_after_many_commits_or_some_time(
    place: Place, monkeypatch: pytest.MonkeyPatch, commits: int, seconds: float
) -> None:
    """While the gateway runs a head follows many commits, or the first one after a while."""
    monkeypatch.setattr(audit_heads, "COMMITS", commits)
    monkeypatch.setattr(audit_heads, "SECONDS", seconds)
    monkeypatch.setattr(audit_heads, "_TICK", 0.01)
    monkeypatch.setattr(audit_heads, "_RETRY", 0.01)
    keeper = place.keeper()
    await keeper.check()
    assert await keeper.sign()
    file = HeadsFile(place.audit / "heads.jsonl")

    async def anchored(rows: int) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + 30
        while (head := file.last()) is None or head.sequence < rows:
            assert loop.time() < until, f"{head} is the last head"
            await asyncio.sleep(0.01)

    running_ = asyncio.create_task(keeper.run())
    try:
        await anchored(8)
        before = len(list(file.read()))
        for _ in range(2):
            await a_turn(place.store)
        await anchored(11)  # of twelve: the last row may be one of too few
        assert len(list(file.read())) > before
        # A file that takes nothing delays heads, and nothing else.
        away = file.path.with_name("away")
        file.path.rename(away)
        file.path.mkdir()
        for _ in range(2):
            await a_turn(place.store)
        file.path.rmdir()
        away.rename(file.path)
        await a_turn(place.store)
        await a_turn(place.store)
        await anchored(18)
        assert not running_.done()
    finally:
        running_.cancel()
    assert place.verify().intact


async def test_another_key_is_refused(place: Place, tmp_path: Path) -> None:
    """A lost or another key than the last head's stops the start, which makes and renames nothing.

    So does a key that others can read.
    """
    key = place.audit / "key"
    original = key.read_bytes()
    key.unlink()
    files = {file: file.read_bytes() for file in place.audit.iterdir()}
    with pytest.raises(StateUnusable, match="is missing: restore it"):
        place.keeper()
    assert {file: file.read_bytes() for file in place.audit.iterdir()} == files
    SigningKey.prepare(tmp_path / "other")
    shutil.copy(tmp_path / "other/key", key)
    with pytest.raises(StateUnusable, match="is another one: restore it"):
        place.keeper()
    key.unlink()
    assert {file: file.read_bytes() for file in place.audit.iterdir()} == files
    key.write_bytes(original)
    key.chmod(0o640)
    with pytest.raises(StateUnusable, match="mode 600"):
        place.keeper()
    key.chmod(0o600)
    keeper = place.keeper()
    with (place.audit / "heads.jsonl").open("a") as file:
        file.write(encode(SignedHead(99, "f" * 64, 1, "ed25519:0", "s" * 88)) + "\n")
    await keeper.check()  # against the head that was proved, not against what was appended since
    key.write_bytes(b"nonsense")
    with pytest.raises(StateUnusable, match="holds no audit key"):
        place.keeper()


async def test_heads_go_where_the_operator_says(place: Place, tmp_path: Path) -> None:
    """With a configured file, heads are appended there alone; one that cannot be appended to is refused."""
    elsewhere = tmp_path / "far" / "heads"
    with pytest.raises(StateUnusable, match="is its disk mounted"):
        place.keeper(elsewhere)
    Anchor(tmp_path / "new", tmp_path / "new" / "heads")  # its directory is made by the start
    elsewhere.parent.mkdir()
    keeper = place.keeper(elsewhere)
    await keeper.check()
    elsewhere.parent.rename(tmp_path / "away")
    with pytest.raises(StateUnusable, match="cannot append to the audit heads"):
        await keeper.sign_or_fail()
    assert not await keeper.sign()
    elsewhere.parent.mkdir()
    assert await keeper.sign()
    (head,) = HeadsFile(elsewhere).read()
    assert head.sequence == 9
    assert len((place.audit / "heads.jsonl").read_text(encoding="utf-8").splitlines()) == 1


def test_a_line_that_a_crash_cut_off_counts_as_none(tmp_path: Path) -> None:
    """After a torn line the next head begins a line of its own, and both readers see the whole ones."""
    file = HeadsFile(tmp_path / "heads")
    first, second = (SignedHead(number, "sha256:0", 1, "k", "s") for number in (1, 2))
    assert file.last() is None
    file.append(first)
    with file.path.open("a", encoding="utf-8") as torn:
        torn.write(encode(second)[:20])
    assert file.last() == first
    file.append(second)
    assert list(file.read()) == [first, second]
    assert file.last() == second
    file.path.write_text("nonsense\n", encoding="utf-8")
    with pytest.raises(StateUnusable, match="holds no audit head"):
        file.last()


def test_the_key_is_private_and_its_signatures_cannot_be_moved(tmp_path: Path) -> None:
    """The private key has mode 600 and is kept over starts; a signature fits its own head only."""
    key = SigningKey.prepare(tmp_path / "audit")
    assert stat.S_IMODE((tmp_path / "audit/key").stat().st_mode) == 0o600
    assert SigningKey.prepare(tmp_path / "audit").public.key_id == key.public.key_id
    head = key.sign(sequence=3, row="sha256:ff", at=5)
    public = read_key(tmp_path / "audit/key.pub")
    assert public.authentic(head)
    for forged in (
        replace(head, sequence=4),
        replace(head, hash="sha256:00"),
        replace(head, at=6),
        replace(head, key_id="ed25519:0"),
        replace(head, signature="AAAA"),
        replace(head, signature="not base64"),
        SigningKey.prepare(tmp_path / "other").sign(sequence=3, row="sha256:ff", at=5),
    ):
        assert not public.authentic(forged)


@pytest.mark.toolchain
def test_openssl_checks_the_signatures(tmp_path: Path) -> None:
    """Who does not trust this project verifies a head by the PEM, with a tool of their own."""
    openssl = toolchain.require("openssl")
    head = SigningKey.prepare(tmp_path / "audit").sign(sequence=3, row="sha256:ff", at=5)
    (tmp_path / "signature").write_bytes(base64.b64decode(head.signature))
    (tmp_path / "covered").write_bytes(signed_bytes(sequence=3, row="sha256:ff", at=5, key_id=head.key_id))
    command = [
        str(openssl),
        "pkeyutl",
        "-verify",
        "-pubin",
        "-inkey",
        str(tmp_path / "audit/key.pub"),
        "-rawin",
    ]
    command += ["-sigfile", str(tmp_path / "signature"), "-in", str(tmp_path / "covered")]
    run = subprocess.run(command, capture_output=True, timeout=30, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    "line",
    ["", "[]", "{}", "nonsense", '{"sequence":"x","at":1,"kind":1}', '{"sequence": 1}'],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: str) -> None:
    """An export with a line that is no row is refused with the line's number."""
    file = tmp_path / "rows"
    file.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(StateUnusable, match=r"rows:1: not a row"):
        list(exported_rows(file))


async def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    """A file that is missing, no database, or one without a chained log, is named as such."""
    heads, key = tmp_path / "heads", tmp_path / "audit/key.pub"
    SigningKey.prepare(tmp_path / "audit")
    with pytest.raises(StateUnusable, match="cannot read the heads"):
        verify_database(tmp_path / "none", heads, key)
    heads.touch()
    with pytest.raises(StateUnusable, match="no database"):
        verify_database(tmp_path / "none", heads, key)
    (tmp_path / "text").write_text("no database at all, but long enough to be looked at\n" * 50)
    with pytest.raises(StateUnusable):
        verify_database(tmp_path / "text", heads, key)
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(StateUnusable, match="holds no audit log"):
        verify_database(tmp_path / "other.db", heads, key)
    with pytest.raises(StateUnusable, match="no Ed25519 public key"):
        read_key(heads)


async def test_every_way_of_a_turn_is_chained(store: SqliteStore, database: Path) -> None:
    """Rows of acceptance, transitions and records without a turn form one chain from the first row on."""
    turn = await running(store)
    turn, *_ = await store.commit(
        replace(begin(turn, call(turn, CallState.PERMITTED)), audit=(entry("begun"), entry("bound")))
    )
    await store.record((entry("between"),), now())
    await store.commit(replace(end(turn, "x"), audit=(entry("ended"),)))
    SigningKey.prepare(database.parent / "audit")
    (database.parent / "audit/heads.jsonl").touch()
    report = Place(store, database, database.parent / "audit").verify()
    assert (report.intact, report.rows) == (True, 5)
