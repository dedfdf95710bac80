"""Files of an audit log that somebody prepared: each is named or passed over, and hides nothing."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.storage.builders import now
from tyrum.audit.v1.audit_pb2 import ExportAuditRequest
from tyrum_gateway.domain.audit import SignedHead
from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.rpc.audit import AuditServicer
from tyrum_gateway.storage import SqliteStore
from tyrum_gateway.storage.audit_file import database_rows, exported_rows, read_key
from tyrum_gateway.storage.audit_heads import HeadsFile, decode, encode
from tyrum_gateway.storage.audit_key import SigningKey

HEAD = SignedHead(1, "sha256:0", 1, "k", "s")
ROW = '"kind":"k","actor":"a","subject":"s","details":"{}","previous":"p","hash":"h"'


@pytest.mark.parametrize(
    "line",
    [
        "[" * 1020,
        encode(HEAD).replace('"sequence":1', f'"sequence":{1 << 63}'),
        encode(HEAD).replace("sha256:0", "\\ud800"),
    ],
    ids=["nested", "beyond 64 bits", "half a character"],
)
def test_a_line_that_no_gateway_wrote_is_no_head(tmp_path: Path, line: str) -> None:
    """A line that cannot be parsed, stored or sent is passed over; it ends no start and no verification."""
    file = HeadsFile(tmp_path / "heads")
    file.append(HEAD)
    with file.path.open("a", encoding="utf-8") as appended:
        appended.write(line + "\n")
    assert decode(line) is None
    assert file.last() == HEAD
    assert list(file.read()) == [HEAD]


def test_blanks_after_the_heads_do_not_take_them_away(tmp_path: Path) -> None:
    """Whoever may only append cannot have a start believe that no head was ever signed."""
    file = HeadsFile(tmp_path / "heads")
    file.append(HEAD)
    with file.path.open("ab") as appended:
        appended.write(b"\n" * 20_000)
    with pytest.raises(StateUnusable, match="holds no audit head"):
        file.last()


def test_an_old_head_that_is_appended_again_is_not_the_last(tmp_path: Path) -> None:
    """Whoever may only append cannot have a start take a rolled back database for the newest."""
    file = HeadsFile(tmp_path / "heads")
    for head in (HEAD, replace(HEAD, sequence=HEAD.sequence + 5), HEAD):
        file.append(head)
    assert file.last() == replace(HEAD, sequence=HEAD.sequence + 5)


def test_a_new_key_leaves_the_public_key_of_the_old_one(tmp_path: Path) -> None:
    """Heads of a key that was lost can still be verified: its public key is set aside, never overwritten."""
    former = SigningKey.prepare(tmp_path)
    head = former.sign(sequence=1, row="sha256:0", at=1)
    (tmp_path / "key").unlink()
    SigningKey.prepare(tmp_path)
    assert not read_key(tmp_path / "key.pub").authentic(head)
    digits = former.public.key_id.removeprefix("ed25519:")
    assert read_key(tmp_path / f"key-{digits}.pub").authentic(head)


@pytest.mark.parametrize("column", ["sequence", "at", "details", "hash"])
def test_a_row_of_other_types_is_named(tmp_path: Path, column: str) -> None:
    """A table that was made anew can hold what no gateway writes; that is said, and is no crash."""
    with sqlite3.connect(tmp_path / "db") as database:
        database.execute("CREATE TABLE audit (sequence, at, kind, actor, subject, details, previous, hash)")
        database.execute("INSERT INTO audit VALUES (1, 1, 'k', 'a', 's', '{}', 'p', 'h')")
        database.execute(f"UPDATE audit SET {column} = x'00ff'")  # noqa: S608 - a name from above
    database.close()
    with pytest.raises(StateUnusable, match="holds what no gateway writes"):
        list(database_rows(tmp_path / "db"))


async def test_a_row_before_the_first_is_exported_too(store: SqliteStore, database: Path) -> None:
    """Rows with numbers below 1 reach whoever verifies; no gateway writes such rows."""
    await store.record((AuditEntry("k", "kernel", "s", {}),), now())
    other = sqlite3.connect(database)
    with other:
        other.execute(
            "INSERT INTO audit SELECT -3, at, kind, actor, subject, details, previous, hash FROM audit"
        )
    other.close()
    servicer = AuditServicer(store.audit, store.principals, heads=list, public_key="")
    rows = [
        row.sequence
        async for answer in servicer.ExportAudit(ExportAuditRequest(), None)
        for row in answer.rows
    ]
    assert rows[:2] == [-3, 1]


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"sequence":Infinity,"at":1,' + ROW + "}",
        '{"sequence":1.5,"at":1,' + ROW + "}",
        '{"sequence":true,"at":1,' + ROW + "}",
        '{"sequence":"1_0","at":1,' + ROW + "}",
        '{"sequence":1,"at":1,"details":"shown",' + ROW + "}",
    ],
)
def test_a_line_that_no_export_holds_is_named(tmp_path: Path, line: str) -> None:
    """Nesting without end, numbers of another form, and what readers could read in two ways are refused."""
    file = tmp_path / "rows"
    file.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(StateUnusable, match=r"rows:1: not a row"):
        list(exported_rows(file))
