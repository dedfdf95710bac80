"""Verifying the audit log: rows against each other, and against the heads that were signed outside.

Invariant: a row counts as anchored only up to the last head that is authentic and fits. What comes later is
never called verified: it is unanchored, or from the first break on not verifiable at all. Findings name rows;
the pass is one walk with bounded memory.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tyrum_gateway.domain.audit import GENESIS, AuditRow, SignedHead, row_hash

MOST_FINDINGS = 1000
"""Findings that a report lists; more are counted."""

_REACH = 16
"""How many numbers away a row that was moved is recognised as one."""

_DISPUTED = "disputed"
"""Stands for the hash of a row about which heads disagree; no row has it."""

Check = Callable[[SignedHead], bool]
"""Tells whether a head's signature is authentic."""


class Finding(StrEnum):
    """What can be wrong."""

    EDITED = "edited"
    """The row's content does not give its hash."""
    MOVED = "moved"
    """The row is intact but was written under another number."""
    MISSING = "missing"
    """Rows are not there."""
    INSERTED = "inserted"
    """The row stands between two that follow each other."""
    OUT_OF_ORDER = "out of order"
    """The row comes after one with the same or a larger number."""
    BROKEN = "chain broken"
    """The row does not name the hash of the row before it."""
    REWRITTEN = "rewritten"
    """The row is not the one that was signed: it or rows before it were replaced, and the hashes too."""
    TRUNCATED = "truncated"
    """Rows at the end are not there although a head was signed over them."""
    FORGED_HEAD = "forged head"
    """A head's signature is not that of the key."""
    HEADS_DISAGREE = "heads disagree"
    """Two authentic heads name different hashes for one row: the log had two histories."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding."""

    finding: Finding
    first: int
    """The row it is about, or the first of them; 0 when it is about a head."""
    last: int
    """The row, or the last of them, or the row that the head is over."""
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a verification found."""

    rows: int
    """Rows that were read."""
    last: int
    """Sequence of the last row; 0 without rows."""
    heads: int
    """Authentic heads."""
    anchored: int
    """Sequence of the last row that an authentic head fits; 0 when none does."""
    problems: tuple[Problem, ...]
    """At most `MOST_FINDINGS`."""
    found: int
    """How many problems there are."""
    broken: int = 0
    """The first row that may not be what was written, and from which on nothing is verifiable; 0 without."""
    begun: tuple[int, ...] = ()
    """Rows at which a gateway found no head and began anew: the heads before, if there were any, are gone.
    At most `MOST_FINDINGS`, like the next."""
    unsigned_starts: tuple[int, ...] = ()
    """Starts, the last one apart, without a head before the next one, although each signs one."""

    @property
    def intact(self) -> bool:
        """Whether nothing was found; says nothing about rows after `anchored`."""
        return self.found == 0

    @property
    def chained(self) -> int:
        """Sequence of the last row before the break; of the last row when there is none."""
        return min(self.broken - 1, self.last) if self.broken else self.last

    @property
    def unanchored(self) -> int:
        """Rows after the last fitting head: chained, but whoever can write the database can rewrite them."""
        return max(0, self.chained - self.anchored)

    @property
    def after_break(self) -> int:
        """Rows from the break on: no head vouches for them, also where one was signed over them."""
        return self.last - self.chained


def verify(rows: Iterable[AuditRow], heads: Sequence[SignedHead], check: Check) -> Report:
    """Verify a whole log, which begins with row 1.

    Args:
        rows: In the order they are stored.
        heads: All signed heads, in the order of their file.
        check: Whether a signature is authentic; called once for each head.
    """
    verification = Verification(heads, check)
    for row in rows:
        verification.feed(row)
    return verification.finish()


class Verification:
    """The same, row by row, for logs that come in pieces."""

    def __init__(self, heads: Sequence[SignedHead], check: Check) -> None:
        self._problems: list[Problem] = []
        self._found = 0
        self._rows = 0
        self._last: AuditRow | None = None
        self._last_computed = GENESIS
        self._before_last = GENESIS
        self._shift = 0
        self._anchored = 0
        self._clean = True
        self._broken = 0
        self._begun: list[int] = []
        self._unsigned: list[int] = []
        self._started = 0
        self._heads: dict[int, str] = {}
        self._authentic = 0
        for head in heads:
            self._take(head, check)

    def feed(self, row: AuditRow) -> None:
        """Look at the next row."""
        self._rows += 1
        expected = 1 if self._last is None else self._last.sequence + 1
        computed = _computed(row, row.sequence)
        self._integrity(row, computed)
        if row.sequence > expected:
            self._report(Finding.MISSING, expected, row.sequence - 1)
        elif row.sequence < expected:
            self._report(Finding.OUT_OF_ORDER, row.sequence)
            return
        else:
            self._link(row)
        self._history(row)
        signed = self._heads.get(row.sequence)
        if signed is not None and signed != row.hash:
            self._report(Finding.REWRITTEN, row.sequence)
        elif signed is not None and self._clean:
            # A head vouches for all rows before it, so not behind a row with which something is wrong.
            self._anchored = row.sequence
        self._before_last = GENESIS if self._last is None else self._last.hash
        self._last, self._last_computed = row, computed

    def finish(self) -> Report:
        """Compare the end with the last head and return the report."""
        last = 0 if self._last is None else self._last.sequence
        newest = max(self._heads, default=0)
        if newest > last:
            self._report(Finding.TRUNCATED, last + 1, newest)
        return Report(
            rows=self._rows,
            last=last,
            heads=self._authentic,
            anchored=self._anchored,
            problems=tuple(self._problems),
            found=self._found,
            broken=self._broken,
            begun=tuple(self._begun),
            unsigned_starts=tuple(self._unsigned),
        )

    def _history(self, row: AuditRow) -> None:
        """Note what the log itself says of heads that are not there."""
        if row.kind == "audit.heads_begun" and len(self._begun) < MOST_FINDINGS:
            self._begun.append(row.sequence)
        if row.kind == "gateway.started":
            if self._started and len(self._unsigned) < MOST_FINDINGS:
                self._unsigned.append(self._started)
            self._started = row.sequence
        if row.sequence in self._heads:
            self._started = 0

    def _take(self, head: SignedHead, check: Check) -> None:
        if not check(head):
            self._report(Finding.FORGED_HEAD, 0, head.sequence)
            return
        self._authentic += 1
        if self._heads.setdefault(head.sequence, head.hash) != head.hash:
            self._heads[head.sequence] = _DISPUTED
            self._report(Finding.HEADS_DISAGREE, 0, head.sequence)

    def _integrity(self, row: AuditRow, computed: str) -> None:
        if row.hash == computed:
            self._shift = 0
            return
        for shift in _shifts(self._shift):
            if row.sequence - shift > 0 and row.hash == _computed(row, row.sequence - shift):
                self._shift = shift
                self._report(Finding.MOVED, row.sequence, origin=row.sequence - shift)
                return
        self._report(Finding.EDITED, row.sequence)

    def _link(self, row: AuditRow) -> None:
        # Of a row that was edited, either hash may be the one its successor names.
        previous = GENESIS if self._last is None else self._last.hash
        if row.previous in {previous, self._last_computed}:
            return
        if self._last is not None and row.previous == self._before_last:
            self._report(Finding.INSERTED, self._last.sequence)
        else:
            self._report(Finding.BROKEN, row.sequence)

    def _report(self, finding: Finding, first: int, last: int | None = None, *, origin: int = 0) -> None:
        self._found += 1
        self._clean = self._clean and not first
        if first and finding is not Finding.TRUNCATED:
            self._break(finding, first)
        if len(self._problems) < MOST_FINDINGS:
            last = first if last is None else last
            self._problems.append(Problem(finding, first, last, _message(finding, first, last, origin)))

    def _break(self, finding: Finding, row: int) -> None:
        """Note from which row on nothing is verifiable."""
        if finding is Finding.REWRITTEN:
            # Which of the rows that the head is over was replaced, nobody can tell.
            row = self._anchored + 1
        elif finding is Finding.OUT_OF_ORDER:
            row = 1 if self._last is None else self._last.sequence + 1
        row = max(row, self._anchored + 1)
        self._broken = min(self._broken or row, row)


def _computed(row: AuditRow, sequence: int) -> str:
    return row_hash(
        sequence=sequence,
        at=row.at,
        kind=row.kind,
        actor=row.actor,
        subject=row.subject,
        details=row.details,
        previous=row.previous,
    )


def _shifts(present: int) -> Iterable[int]:
    if present:
        yield present
    for distance in range(1, _REACH + 1):
        yield from (distance, -distance)


def _message(finding: Finding, first: int, last: int, origin: int) -> str:
    rows = f"row {first}" if first == last else f"rows {first} to {last}"
    match finding:
        case Finding.EDITED:
            return f"{rows} was edited: its content does not give its hash"
        case Finding.MOVED:
            return f"{rows} was written as row {origin}"
        case Finding.MISSING:
            return f"{rows} {'is' if first == last else 'are'} missing"
        case Finding.INSERTED:
            return f"{rows} was inserted: the row after it follows the row before it"
        case Finding.OUT_OF_ORDER:
            return f"{rows} is out of order or there twice"
        case Finding.BROKEN:
            return f"{rows} does not follow the row before it: the chain is broken here"
        case Finding.REWRITTEN:
            return f"{rows} is not what was signed: it or rows before it were rewritten"
        case Finding.TRUNCATED:
            return f"{rows} {'is' if first == last else 'are'} missing at the end although a head was signed"
        case Finding.FORGED_HEAD:
            return f"the head over row {last} carries no signature of this key"
        case Finding.HEADS_DISAGREE:
            return f"authentic heads disagree about row {last}: the log had two histories"
