"""Reads the contract documents: rows, the checks that hold them, and kernel invariants.

A check is a line `Check: VALUE` (a bullet before it is allowed) and a sabotage a line `Sabotage: VALUE`.
VALUE is either the id of a test, `tests/path.py::name`, or `PLANNED ID` with free text behind it. A planned
check is a promise of work and never evidence.
"""

import ast
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = ROOT / "docs" / "contracts"

ROWS = (
    "Purpose and exclusions",
    "Ownership",
    "Cardinality",
    "Selection scope",
    "Trust and deployment mode",
    "Operations",
    "Canonical types",
    "Lifecycle",
    "Configuration and secrets",
    "Capability state",
    "Errors and retries",
    "Time bounds",
    "Invocation semantics",
    "Persistence",
    "Observability and audit",
    "Versioning",
    "Degraded behavior",
    "Built-in default",
    "Conformance",
)
"""What ARCH-29 requires every provider-kind contract to define, in its order."""

SHORTEST_ANSWER = 80
"""Fewer characters than any answer of a row has."""

_HEADING = re.compile(r"^## (?:(\d+)\. )?(.+)$")
_INVARIANT = re.compile(r"^### (INV-\d{2}) (.+)$")
_LINE = re.compile(r"^(?:- )?(Check|Sabotage|Owner): (.+)$")
_PLANNED = re.compile(r"^PLANNED (?:conformance )?([A-Z]+-\d{2})\b")
_TEST = re.compile(r"^(tests/[\w/]+\.py)::(\w+)$")
_ERROR = re.compile(r"^\| (tyrum\.[\w.]+) \| ([A-Z_]+) \| ([A-Z_]+) \| (.+) \|$")
_REGISTERED = re.compile(r"^\| ([A-Z]+-\d{2}) \|")


class DocumentError(Exception):
    """A document is not well-formed; the message names file and line."""


@dataclass(frozen=True, slots=True)
class TestId:
    """A test function by file and name."""

    __test__ = False

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Planned:
    """A check that does not exist yet."""

    check_id: str


Check = TestId | Planned


@dataclass(slots=True)
class Section:
    """One section of a document and what its machine-readable lines say."""

    title: str
    number: int | None = None
    prose: int = 0
    owners: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    sabotages: list[Check] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Document:
    """A contract document: its sections in order and the check ids that its tables define."""

    name: str
    sections: tuple[Section, ...]
    registered: tuple[str, ...]

    @property
    def checks(self) -> list[Check]:
        """All checks and sabotages of the document."""
        return [check for section in self.sections for check in (*section.checks, *section.sabotages)]


def parse(name: str, text: str) -> Document:
    """Read one document.

    Raises:
        DocumentError: a check is neither a test id nor planned, or stands before the first heading.
    """
    sections: list[Section] = []
    registered: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        place = f"{name}:{number}"
        if heading := _HEADING.match(line):
            sections.append(Section(heading[2], int(heading[1]) if heading[1] else None))
        elif invariant := _INVARIANT.match(line):
            sections.append(Section(f"{invariant[1]} {invariant[2]}"))
        elif entry := _LINE.match(line):
            if not sections:
                raise DocumentError(f"{place}: `{entry[1]}` before the first heading")
            _add(sections[-1], entry[1], entry[2], place)
        else:
            if row := _REGISTERED.match(line):
                registered.append(row[1])
            if sections:
                sections[-1].prose += len(line.strip())
    return Document(name, tuple(sections), tuple(registered))


def _add(section: Section, kind: str, value: str, place: str) -> None:
    if kind == "Owner":
        section.owners.append(value)
        return
    check: Check
    if planned := _PLANNED.match(value):
        check = Planned(planned[1])
    elif test := _TEST.match(value):
        check = TestId(test[1], test[2])
    else:
        raise DocumentError(f"{place}: `{value}` is neither `tests/FILE.py::NAME` nor `PLANNED ID`")
    (section.checks if kind == "Check" else section.sabotages).append(check)


def documents(directory: Path = CONTRACTS) -> list[Document]:
    """Read every document of a directory, in the order of their names."""
    return [parse(path.name, path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.md"))]


def row_problems(document: Document) -> list[str]:
    """Find what keeps a kind's document from answering all nineteen rows, each with a check."""
    found = [section for section in document.sections if section.number is not None]
    problems = [
        f"row {number} is `{section.title}` (numbered {section.number}), not `{wanted}`"
        for number, (wanted, section) in enumerate(zip(ROWS, found, strict=False), start=1)
        if (section.number, section.title) != (number, wanted)
    ]
    if len(found) != len(ROWS):
        problems.append(f"{len(found)} numbered rows, not {len(ROWS)}")
    for section in found:
        if not section.checks:
            problems.append(f"row `{section.title}` names no check")
        if section.prose < SHORTEST_ANSWER:
            problems.append(f"row `{section.title}` says nothing")
    return [f"{document.name}: {problem}" for problem in problems]


def check_problems(document: Document, root: Path = ROOT) -> list[str]:
    """Find checks that name no existing test, and planned ones that no table of the document defines."""
    problems = []
    for check in dict.fromkeys(document.checks):
        match check:
            case TestId(path, name) if name not in tests_of(root / path):
                problems.append(f"no test `{path}::{name}`")
            case Planned(check_id) if check_id not in document.registered:
                problems.append(f"planned check `{check_id}` is in no table")
            case _:
                pass
    repeated = {check_id for check_id in document.registered if document.registered.count(check_id) > 1}
    problems += [f"check id `{check_id}` is defined twice" for check_id in sorted(repeated)]
    return [f"{document.name}: {problem}" for problem in problems]


def invariant_problems(document: Document, root: Path = ROOT) -> list[str]:
    """Find invariants without one owner, a check and a sabotage, and tested ones whose owner is gone."""
    invariants = [section for section in document.sections if section.title.startswith("INV-")]
    problems = [] if invariants else ["no invariants"]
    ids = [section.title.split()[0] for section in invariants]
    if ids != [f"INV-{number:02}" for number in range(1, len(ids) + 1)]:
        problems.append("ids are not consecutive")
    for section in invariants:
        name = section.title.split()[0]
        if len(section.owners) != 1:
            problems.append(f"{name} has {len(section.owners)} owners, not 1")
        problems += [f"{name} has no check"] if not section.checks else []
        problems += [f"{name} has no sabotage"] if not section.sabotages else []
        built = any(isinstance(check, TestId) for check in (*section.checks, *section.sabotages))
        problems += [
            f"{name} is tested but its owner `{owner}` does not exist"
            for owner in section.owners
            if built and not (root / owner).exists()
        ]
    return [f"{document.name}: {problem}" for problem in problems]


def claim_registry(text: str) -> dict[str, str]:
    """The claims that the isolation contract's registry defines with their meanings, in its order."""
    return dict(re.findall(r"^\| `([a-z]+\.[a-z_]+)` \| (.+) \|$", text, re.MULTILINE))


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """A row of the error register: how one service's reason is provoked."""

    service: str
    reason: str
    code: str
    test: TestId | None
    """None when the test is only planned."""


def error_register(text: str) -> list[ErrorEntry]:
    """Read the rows of the error register.

    Raises:
        DocumentError: a row names neither a test nor `PLANNED`.
    """
    entries = []
    for line in text.splitlines():
        if row := _ERROR.match(line):
            test = _TEST.match(row[4])
            if test is None and row[4] != "PLANNED":
                raise DocumentError(f"{row[1]} {row[2]}: `{row[4]}` is neither a test nor `PLANNED`")
            entries.append(ErrorEntry(row[1], row[2], row[3], TestId(test[1], test[2]) if test else None))
    return entries


def register_problems(
    entries: list[ErrorEntry], rows: set[tuple[str, str, str]], root: Path = ROOT
) -> list[str]:
    """Compare the register with the (service, reason, code) rows of the error tables and with the tests.

    A row of a service that has no tables yet must be planned. A test provokes a reason only if its file names
    it.
    """
    listed = {(entry.service, entry.reason, entry.code) for entry in entries}
    built = {service for service, _, _ in rows}
    problems = [f"{' '.join(row)}: in an error table, not in the register" for row in rows - listed]
    for entry in entries:
        name = f"{entry.service} {entry.reason}"
        if entry.service in built and (entry.service, entry.reason, entry.code) not in rows:
            problems.append(f"{name} {entry.code}: in the register, in no error table")
        if entry.test is None:
            continue
        if entry.service not in built:
            problems.append(f"{name}: tested, but the service has no error table")
        path = root / entry.test.path
        if entry.test.name not in tests_of(path):
            problems.append(f"{name}: no test `{entry.test.path}::{entry.test.name}`")
        elif not re.search(rf"\b{entry.reason}\b", path.read_text(encoding="utf-8")):
            problems.append(f"{name}: `{entry.test.path}` never names the reason")
    if len(entries) != len({(entry.service, entry.reason) for entry in entries}):
        problems.append("a reason of a service is listed twice")
    return sorted(problems)


def planned(document: Document) -> list[str]:
    """The ids of all checks that are only planned, each once, in order."""
    return list(dict.fromkeys(check.check_id for check in document.checks if isinstance(check, Planned)))


@cache
def tests_of(path: Path) -> dict[str, str]:
    """The test functions of a file, methods included, with their source; empty when there is no such file."""
    if not path.is_file():
        return {}
    source = path.read_text(encoding="utf-8")
    return {
        node.name: ast.get_source_segment(source, node) or ""
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }
