"""Migrations of a database that holds work: nothing is lost, and what is new fits what was there."""

import hashlib
import sqlite3
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from tests.storage.builders import message
from tyrum_gateway.domain.audit import GENESIS, row_hash
from tyrum_gateway.storage import SqliteStore, migrations

_FIRST = (
    ("INSERT INTO principals VALUES (?, ?, ?, ?)", ("prin_1", "ops", '["chat"]', 1)),
    ("INSERT INTO tokens VALUES (?, ?, ?, NULL, NULL)", ("ab" * 32, "prin_1", 1)),
    ("INSERT INTO tokens VALUES (?, ?, ?, NULL, NULL)", ("cd" * 32, "prin_1", 1)),
    ("INSERT INTO audit VALUES (NULL, ?, ?, ?, ?, ?)", (5, "a.b", "kernel", "turn_1", "{}")),
    ("INSERT INTO audit VALUES (NULL, ?, ?, ?, ?, ?)", (6, "c.d", "prin_1", "turn_2", '{"x":1}')),
)


def _version(database: Path, revision: str) -> None:
    database.parent.mkdir(mode=0o700, exist_ok=True)
    engine = create_engine(f"sqlite:///{database}")
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("path_separator", "os")
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.commit()
    engine.dispose()


async def test_an_audit_log_without_a_chain_is_chained(database: Path) -> None:
    """The rows of the first schema keep content and order and get a chain; every token gets a name."""
    _version(database, "1")
    raw = sqlite3.connect(database)
    for statement, values in _FIRST:
        raw.execute(statement, values)
    raw.commit()
    raw.close()
    async with await SqliteStore.open(database):
        pass
    raw = sqlite3.connect(database)
    rows = raw.execute(
        "SELECT sequence, at, kind, actor, subject, details, previous, hash FROM audit ORDER BY sequence"
    ).fetchall()
    assert [row[:6] for row in rows] == [
        (1, 5, "a.b", "kernel", "turn_1", "{}"),
        (2, 6, "c.d", "prin_1", "turn_2", '{"x":1}'),
    ]
    previous = GENESIS
    for sequence, at, kind, actor, subject, details, named, hashed in rows:
        assert named == previous
        previous = row_hash(
            sequence=sequence,
            at=at,
            kind=kind,
            actor=actor,
            subject=subject,
            details=details,
            previous=previous,
        )
        assert hashed == previous
    names = raw.execute("SELECT token_id FROM tokens ORDER BY token_id").fetchall()
    assert names == [("tok_0" + ("ab" * 13)[:25],), ("tok_0" + ("cd" * 13)[:25],)]
    raw.close()


_LANDED = {
    "v0001_first.py": "cd94252673c232e6f15a38d4f9f19db538f8cc796168a2118249b873a6e23b4a",
    "v0002_governance.py": "1ba53f487f0aced6e699354ebc89baefa540fd91e0ca095086161bdc1735e938",
    "v0003_time_and_quota.py": "1b63872e32bc16201f5eb40df00dd01161b2185f2fe388f7c66c26ccb280e68b",
    "v0004_journals.py": "bffa4c21a1d01d06ff4e69ddfd8b07992ed7b512544c89f39c21310e78b5251f",
    "v0005_models_and_tokens.py": "5e3632877270fbb89e2f6f74bd71c58dfced4f07f0a8f13103c924e758187485",
}
"""Digests of migrations that databases have behind them; a new one is added when it lands."""


def test_a_migration_that_databases_have_behind_them_stays_as_it_is() -> None:
    """What such a migration said is in databases already: a change of it reaches none of them."""
    versions = Path(migrations.__file__).parent / "versions"
    found = {name: hashlib.sha256((versions / name).read_bytes()).hexdigest() for name in _LANDED}
    assert found == _LANDED, "add a migration instead"


async def test_bindings_of_before_name_no_journal(database: Path) -> None:
    """A binding of the third version keeps what it says, and names no journal that could prove anything."""
    _version(database, "3")
    raw = sqlite3.connect(database)
    values = ("bind_0" + "1" * 25, "op_0" + "1" * 25, *"abcd", 1, 0, *"efghi", '["fs.read=PROVED"]', 7)
    raw.execute("INSERT INTO bindings VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", values)
    raw.commit()
    raw.close()
    async with await SqliteStore.open(database) as store:
        (bound,) = await store.bindings("", 9)
    assert (bound.binding.candidate.provider, bound.binding.candidate.journal_id) == ("b", "")


async def test_a_database_of_the_second_version_is_migrated(database: Path) -> None:
    """Yesterday's database opens, and its turns have what later versions ask of them."""
    _version(database, "2")
    async with await SqliteStore.open(database) as store:
        accepted = await store.accept(message())
        assert (await store.turn(accepted.turn.turn_id)).turn == accepted.turn
