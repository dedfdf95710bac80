"""The audit chain: what was changed behind a signed head is found and named, whoever changed it and how."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tyrum_gateway.domain import audit
from tyrum_gateway.domain.audit import GENESIS, KINDS, AuditRow, SignedHead, row_hash, signed_bytes
from tyrum_gateway.domain.audit_verify import MOST_FINDINGS, Finding, Report, Verification, verify

ROWS = 40
ANCHORED = 30
"""Rows behind the last head of `HEADS`; the others are not anchored."""

VECTORS = Path(__file__).resolve().parents[2] / "docs/reference/audit.md"


def test_every_kind_that_is_written_is_known() -> None:
    """The kinds of the list are those in the entries that the gateway writes, and stand in the reference."""
    written = re.compile(r'(?:AuditEntry|entry)\(\s*(?:caller,\s*)?"([a-z_]+\.[a-z_]+)"')
    sources = (Path(audit.__file__).parents[1]).rglob("*.py")
    assert {kind for source in sources for kind in written.findall(source.read_text("utf-8"))} == KINDS
    reference = VECTORS.read_text("utf-8")
    assert [kind for kind in sorted(KINDS) if f"`{kind}`" not in reference] == []


def sealed(row: AuditRow) -> AuditRow:
    """Give a row the hash of its content, as an attacker would."""
    fields = {name: getattr(row, name) for name in ("at", "kind", "actor", "subject", "details", "previous")}
    return replace(row, hash=row_hash(sequence=row.sequence, **fields))


def chain(count: int, *, previous: str = GENESIS, first: int = 1) -> list[AuditRow]:
    """Make an honest log."""
    rows = []
    for sequence in range(first, first + count):
        details = json.dumps({"n": sequence})
        row = sealed(
            AuditRow(
                sequence, 10 * sequence, "call.ended", "kernel", f"call_{sequence}", details, previous, ""
            )
        )
        rows.append(row)
        previous = row.hash
    return rows


def rechained(rows: list[AuditRow], start: int) -> list[AuditRow]:
    """Recompute every hash from an index on: the log fits together again."""
    fixed = rows[:start]
    for row in rows[start:]:
        fixed.append(sealed(replace(row, previous=fixed[-1].hash if fixed else GENESIS)))
    return fixed


def head(row: AuditRow, key: str = "k") -> SignedHead:
    """Sign, with a signature that tests can check without cryptography."""
    return SignedHead(row.sequence, row.hash, 7, key, f"{key}:{row.sequence}:{row.hash}")


def authentic(signed: SignedHead) -> bool:
    """Check such a signature against the right key."""
    return signed.signature == f"k:{signed.sequence}:{signed.hash}"


LOG = chain(ROWS)
HEADS = [head(LOG[sequence - 1]) for sequence in (1, 10, 20, ANCHORED)]


def found(report: Report) -> list[tuple[Finding, int, int]]:
    """What a report names."""
    return [(problem.finding, problem.first, problem.last) for problem in report.problems]


def test_an_honest_log_is_intact_and_its_newest_rows_are_unanchored() -> None:
    """Nothing is found in an untouched log; rows after the last head count as unanchored, not as verified."""
    report = verify(LOG, HEADS, authentic)
    assert report.intact
    assert (report.rows, report.last, report.heads) == (ROWS, ROWS, 4)
    assert (report.anchored, report.unanchored) == (ANCHORED, ROWS - ANCHORED)
    alone = verify(LOG, [], authentic)
    assert (alone.intact, alone.anchored, alone.unanchored) == (True, 0, ROWS)
    assert (report.broken, report.after_break) == (alone.broken, alone.after_break) == (0, 0)
    assert verify([], [], authentic) == Report(0, 0, 0, 0, (), 0)


@pytest.mark.parametrize("at", [1, 15, ANCHORED, ROWS])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("at", 999),
        ("kind", "call.denied"),
        ("actor", "prin_x"),
        ("subject", "call_x"),
        ("details", '{"n":0}'),
        ("details", "\udcff no text"),
        ("at", 1 << 62),
    ],
)
def test_an_edit_of_any_column_is_found_at_its_row(at: int, column: str, value: str | int) -> None:
    """Whichever column of whichever row is edited, that row alone is named, and no later head anchors it."""
    rows = list(LOG)
    change: dict[str, Any] = {column: value}
    rows[at - 1] = replace(rows[at - 1], **change)
    report = verify(rows, HEADS, authentic)
    assert found(report) == [(Finding.EDITED, at, at)]
    assert report.anchored == max([seq for seq in (1, 10, 20, ANCHORED) if seq < at], default=0)
    assert (report.broken, report.after_break) == (at, ROWS - at + 1)
    assert report.unanchored == at - 1 - report.anchored
    assert f"row {at} " in report.problems[0].message


@pytest.mark.parametrize("at", [2, 15, ANCHORED])
def test_an_edited_link_is_found(at: int) -> None:
    """A changed hash column is named at its row; a changed link is both no content of its hash and broken."""
    rows = list(LOG)
    rows[at - 1] = replace(rows[at - 1], hash=LOG[0].hash)
    assert (Finding.EDITED, at, at) in found(verify(rows, HEADS, authentic))
    rows = list(LOG)
    rows[at - 1] = replace(rows[at - 1], previous=GENESIS if at != 2 else LOG[5].hash)
    named = found(verify(rows, HEADS, authentic))
    assert {(Finding.EDITED, at, at), (Finding.BROKEN, at, at)} <= set(named)


@pytest.mark.parametrize(("first", "last"), [(1, 1), (15, 15), (12, 17), (20, 20)])
def test_deleted_rows_are_missing(first: int, last: int) -> None:
    """Rows that were deleted are named by their numbers, the first one and those under a head too."""
    rows = [row for row in LOG if not first <= row.sequence <= last]
    report = verify(rows, HEADS, authentic)
    assert found(report) == [(Finding.MISSING, first, last)]
    assert (report.broken, report.anchored + report.unanchored + report.after_break) == (first, ROWS)


def test_a_cut_end_is_found_as_far_as_heads_reach() -> None:
    """Without the last anchored row the log is truncated; rows that no head covers can vanish unseen."""
    assert found(verify(LOG[: ANCHORED - 1], HEADS, authentic)) == [(Finding.TRUNCATED, ANCHORED, ANCHORED)]
    assert found(verify([], HEADS, authentic)) == [(Finding.TRUNCATED, 1, ANCHORED)]
    cut = verify(LOG[: ANCHORED - 1], HEADS, authentic)
    assert (cut.anchored, cut.unanchored, cut.after_break) == (20, ANCHORED - 21, 0), (
        "what is there is chained"
    )
    assert verify(LOG[:ANCHORED], HEADS, authentic).intact


def test_rows_deleted_and_renumbered_are_found() -> None:
    """Closing the gap by new numbers does not help: the rows say under which they were written."""
    rows = [*LOG[:14], *(replace(row, sequence=row.sequence - 1) for row in LOG[15:])]
    named = found(verify(rows, HEADS, authentic))
    assert (Finding.BROKEN, 15, 15) in named
    assert {(Finding.MOVED, sequence, sequence) for sequence in range(15, ROWS)} <= set(named)
    assert (Finding.REWRITTEN, 20, 20) in named


def test_an_inserted_row_is_named() -> None:
    """A row pushed between two others, with a right hash and the later ones renumbered, is named as such."""
    forged = sealed(replace(LOG[14], sequence=16, kind="call.forged", previous=LOG[14].hash))
    rows = [*LOG[:15], forged, *(replace(row, sequence=row.sequence + 1) for row in LOG[15:])]
    report = verify(rows, HEADS, authentic)
    assert (Finding.INSERTED, 16, 16) in found(report)
    assert (Finding.MOVED, 17, 17) in found(report)
    assert "written as row 16" in next(item.message for item in report.problems if item.first == 17)
    twice = [*LOG[:15], LOG[14], *LOG[15:]]
    assert found(verify(twice, HEADS, authentic)) == [(Finding.OUT_OF_ORDER, 15, 15)]
    assert verify(twice, HEADS, authentic).broken == 16
    late = verify([*LOG, LOG[4]], HEADS, authentic)
    assert (late.anchored, late.unanchored, late.after_break) == (ANCHORED, ROWS - ANCHORED, 0)


def test_swapped_rows_are_named() -> None:
    """Two rows whose places were exchanged are named with the numbers they were written under."""
    rows = list(LOG)
    rows[10], rows[12] = replace(LOG[12], sequence=11), replace(LOG[10], sequence=13)
    messages = {problem.message for problem in verify(rows, HEADS, authentic).problems}
    assert {"row 11 was written as row 13", "row 13 was written as row 11"} <= messages
    lines = [*LOG[:10], LOG[11], LOG[10], *LOG[12:]]
    named = found(verify(lines, HEADS, authentic))
    assert named == [(Finding.MISSING, 11, 11), (Finding.OUT_OF_ORDER, 11, 11)]


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(lambda rows: [*rows[:14], replace(rows[14], actor="prin_x"), *rows[15:]], id="edit"),
        pytest.param(
            lambda rows: [*rows[:14], *(replace(row, sequence=row.sequence - 1) for row in rows[15:])],
            id="delete",
        ),
        pytest.param(
            lambda rows: [
                *rows[:15],
                replace(rows[14], sequence=16),
                *(replace(row, sequence=row.sequence + 1) for row in rows[15:]),
            ],
            id="insert",
        ),
        pytest.param(
            lambda rows: [
                *rows[:10],
                replace(rows[12], sequence=11),
                rows[11],
                replace(rows[10], sequence=13),
                *rows[13:],
            ],
            id="swap",
        ),
    ],
)
def test_a_chain_that_was_computed_anew_is_found_by_the_next_head(
    attack: Callable[[list[AuditRow]], list[AuditRow]],
) -> None:
    """Who recomputes all hashes after an attack passes the chain and is caught at the next signed head."""
    rows = rechained(attack(LOG), 10)
    assert verify(rows, [], authentic).intact, "the chain alone cannot tell"
    report = verify(rows, HEADS, authentic)
    assert {item[0] for item in found(report)} == {Finding.REWRITTEN}
    assert found(report)[0] == (Finding.REWRITTEN, 20, 20)
    assert report.anchored == 10
    assert (report.unanchored, report.broken, report.after_break) == (0, 11, len(rows) - 10)


def test_rows_after_a_break_are_told_apart_from_rows_that_no_head_covers_yet() -> None:
    """A break beyond the last head leaves what is before it unanchored, and the rest not verifiable."""
    report = verify([*LOG[:34], replace(LOG[34], actor="prin_x"), *LOG[35:]], HEADS, authentic)
    assert (report.anchored, report.unanchored, report.broken, report.after_break) == (ANCHORED, 4, 35, 6)


def test_rows_after_the_last_head_can_be_rewritten_unseen_and_are_never_called_anchored() -> None:
    """The limit of the method is stated by the report: what is unanchored may have been rewritten."""
    rows = rechained([*LOG[:35], replace(LOG[35], actor="prin_x"), *LOG[36:]], 35)
    report = verify(rows, HEADS, authentic)
    assert report.intact
    assert report.anchored < 36


def test_forged_heads_anchor_nothing() -> None:
    """A head with another key's signature, or over other values than were signed, is named and ignored."""
    rows = rechained([*LOG[:35], replace(LOG[35], actor="prin_x"), *LOG[36:]], 35)
    report = verify(rows, [*HEADS, head(rows[-1], key="other")], authentic)
    assert found(report) == [(Finding.FORGED_HEAD, 0, ROWS)]
    assert (report.anchored, report.heads) == (ANCHORED, 4)
    moved = replace(HEADS[-1], sequence=ROWS)
    assert found(verify(LOG, [moved], authentic)) == [(Finding.FORGED_HEAD, 0, ROWS)]


def test_two_histories_are_named() -> None:
    """Authentic heads that disagree about a row are named, and neither anchors it."""
    other = rechained([*LOG[:24], replace(LOG[24], actor="prin_x"), *LOG[25:]], 24)
    report = verify(LOG, [*HEADS, head(other[ANCHORED - 1])], authentic)
    assert (Finding.HEADS_DISAGREE, 0, ANCHORED) in found(report)
    assert report.anchored == 20


def attacked(rows: list[AuditRow], draw: Random) -> list[AuditRow]:
    """Do something to the anchored rows, as whoever can write the database could."""
    rows = list(rows)
    at = draw.randrange(ANCHORED)
    match draw.randrange(6):
        case 0:
            column, value = draw.choice(
                [("kind", "x"), ("actor", "x"), ("subject", "x"), ("details", "x"), ("at", 1), ("hash", "x")]
            )
            change: dict[str, Any] = {column: value}
            rows[at] = replace(rows[at], **change)
        case 1:
            del rows[at : at + draw.randint(1, 5)]
        case 2:
            rows.insert(at, draw.choice(rows))
        case 3:
            other = draw.randrange(ANCHORED)
            rows[at], rows[other] = rows[other], rows[at]
        case 4:
            del rows[at:]
        case _:
            rows[at] = sealed(replace(rows[at], actor="prin_x"))
    if draw.random() < 0.5:  # number them anew
        rows = [replace(row, sequence=sequence) for sequence, row in enumerate(rows, 1)]
    if draw.random() < 0.5:  # and compute every hash anew
        rows = rechained(rows, 0)
    return rows


def test_no_random_attack_behind_a_head_goes_unnoticed() -> None:
    """Of 500 random changes, with and without new numbers and hashes, each is found or changed nothing."""
    draw = Random(29)
    missed = 0
    for _ in range(500):
        rows = attacked(LOG, draw)
        report = verify(rows, HEADS, authentic)
        harmless = rows[:ANCHORED] == LOG[:ANCHORED]
        missed += harmless
        assert report.intact <= harmless, rows
        if rows[: report.anchored] != LOG[: report.anchored]:
            pytest.fail(f"{report.anchored} rows are called anchored and are not those that were signed")
    assert missed < 50, "the attacks do something"


def test_findings_are_bounded_and_counted() -> None:
    """A log that is wrong everywhere gives a bounded report that says how much more there is."""
    rows = [replace(row, kind="x") for row in chain(MOST_FINDINGS + 5)]
    report = verify(rows, [], authentic)
    assert (len(report.problems), report.found) == (MOST_FINDINGS, MOST_FINDINGS + 5)


def test_a_log_in_pieces_is_verified_like_a_whole_one() -> None:
    """Feeding row by row gives the same report."""
    verification = Verification(HEADS, authentic)
    for row in LOG[5:]:
        verification.feed(row)
    assert verification.finish() == verify(LOG[5:], HEADS, authentic)


def test_the_documented_vector_holds() -> None:
    """The example in the reference is what the code computes, byte for byte."""
    blocks = VECTORS.read_text(encoding="utf-8").split("```")[1::2]
    vector = json.loads(next(block for block in blocks if block.startswith("json")).removeprefix("json"))
    row, signed = vector["row"], vector["head"]
    fields = {
        name: row[name] for name in ("sequence", "at", "kind", "actor", "subject", "details", "previous")
    }
    assert row_hash(**fields) == row["hash"]
    covered = signed_bytes(
        sequence=signed["sequence"], row=signed["hash"], at=signed["at"], key_id=signed["key_id"]
    )
    assert covered == vector["covered"].encode()


def test_heads_that_are_gone_are_told_of() -> None:
    """Where a start found none, and of a start without the head that it signs, the log itself says so."""
    rows = chain(9)
    for at, kind in ((0, "gateway.started"), (3, "gateway.started"), (4, "audit.heads_begun")):
        rows[at] = replace(rows[at], kind=kind)
    rows[7] = replace(rows[7], kind="gateway.started")
    rows = rechained(rows, 0)
    whole = verify(rows, [head(rows[at]) for at in (1, 5, 8)], authentic)
    assert (whole.intact, whole.begun, whole.unsigned_starts) == (True, (5,), ())
    cut = verify(rows, [head(rows[8])], authentic)
    assert (cut.intact, cut.begun, cut.unsigned_starts) == (True, (5,), (1, 4))
