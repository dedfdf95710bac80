"""A few rounds of the soak, and that it would notice."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.soak import phases, verify
from tests.soak.lane import Lane

ROUNDS = 8

pytestmark = pytest.mark.timeout(240)


async def test_a_few_kills_leave_nothing_to_complain_about_and_damage_would_be_found(tmp_path: Path) -> None:
    """After eight kills of gateway and provider all is well, and what is then done to a copy is named."""
    said: list[str] = []
    lane = Lane(tmp_path / "lane", "ci", 1, 3, said.append)
    await lane.soak(ROUNDS, ROUNDS)
    assert lane.tally.violations == []
    assert lane.tally.rounds == ROUNDS
    assert lane.tally.gateways
    assert len(said) == 1
    for damage, complaint in DAMAGES:
        database, ran = tmp_path / "copy.sqlite3", tmp_path / "ran"
        copy_whole(lane.database, database)
        shutil.copy(lane.ran, ran)
        damage(database, ran)
        found = verify.violations(database, ran, lane.notes)
        assert any(complaint in violation for violation in found), (complaint, found)


def test_a_gateway_held_up_in_the_middle_of_a_commit_is_no_error_of_the_database(tmp_path: Path) -> None:
    """Its index of the log is half written then and its lock held: the soak's look must not fail over it."""
    database = tmp_path / "held.sqlite3"
    with closing(sqlite3.connect(database, isolation_level=None)) as gateway:
        gateway.execute("PRAGMA journal_mode=WAL")
        gateway.execute("CREATE TABLE turns (turn_id)")
        gateway.execute("BEGIN IMMEDIATE")
        with database.with_name(f"{database.name}-shm").open("r+b") as index:
            index.seek(56)  # in the second of the two copies of the header, which a commit writes one by one
            index.write(b"\xff")
        with pytest.raises(phases.HeldUp):
            phases.of_turns(database, tmp_path / "trace")


def copy_whole(source: Path, target: Path) -> None:
    """Copy a database with what its log holds: the last gateway was killed and folded nothing."""
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(source)) as whole, closing(sqlite3.connect(target)) as copy:
        whole.backup(copy)


def changed(database: Path, *statements: str) -> None:
    """Change a database in ways that no gateway can."""
    connection = sqlite3.connect(database)
    try:
        for name in ("events_no_update", "events_no_delete", "audit_no_update", "audit_no_delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS {name}")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    finally:
        connection.close()


def lose_a_turn(database: Path, _: Path) -> None:
    """Let an accepted message vanish."""
    changed(database, "DELETE FROM turns WHERE rowid = (SELECT min(rowid) FROM turns)")


def leave_a_turn(database: Path, _: Path) -> None:
    """Let a turn never end."""
    changed(database, "UPDATE turns SET ended_at = NULL WHERE rowid = (SELECT min(rowid) FROM turns)")


def run_twice(_: Path, ran: Path) -> None:
    """Let every command have run twice."""
    ran.write_text(ran.read_text(encoding="utf-8") * 2, encoding="utf-8")


def make_a_hole(database: Path, _: Path) -> None:
    """Lose an event."""
    changed(database, "DELETE FROM events WHERE rowid = (SELECT min(rowid) FROM events WHERE sequence = 2)")


def say_otherwise(database: Path, _: Path) -> None:
    """Give an event another kind than its watcher saw."""
    changed(database, "UPDATE events SET kind = 'turn_finished' WHERE sequence = 1")


DAMAGES: tuple[tuple[Callable[[Path, Path], None], str], ...] = (
    (lose_a_turn, "lost: message"),
    (leave_a_turn, "does not end"),
    (run_twice, "ran 2 times"),
    (make_a_hole, "hole: the events of"),
    (say_otherwise, "watcher of"),
)
