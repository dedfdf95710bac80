"""The contracts' documents and comments say what they must, and the checks that they name exist.

Every rule is tested twice: on what is checked in, and on a planted fault that it has to find.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import contract_comments, contract_documents
from tests.support.contract_comments import Contracts
from tests.support.contract_documents import Document, ErrorEntry, Planned, TestId
from tyrum_conformance.broken._base import CLAIMS as CONFORMING
from tyrum_local_spawn.posture import NOT_ENFORCED
from tyrum_provider_host.claims import CLAIMS

KINDS = ("context.md", "isolation.md", "memory.md")
REGISTER = "errors.md"
MAX_DECISION_LINES = 50


@pytest.fixture(scope="module")
def contracts() -> Contracts:
    """The checked-in contracts with their comments."""
    return contract_comments.load()


@pytest.fixture(scope="module")
def documents() -> dict[str, Document]:
    """The checked-in contract documents by file name."""
    return {document.name: document for document in contract_documents.documents()}


@pytest.fixture(scope="module")
def register() -> list[ErrorEntry]:
    """The checked-in error register."""
    return contract_documents.error_register(
        (contract_documents.CONTRACTS / REGISTER).read_text(encoding="utf-8")
    )


@pytest.fixture
def proto_copy(tmp_path: Path) -> Path:
    """A private copy of the contracts, for planted faults."""
    copy = tmp_path / "proto"
    shutil.copytree(
        contract_comments.PROTO, copy, ignore=shutil.ignore_patterns("*.py", "*.pyi", "__pycache__")
    )
    return copy


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of one contract, and what the rule says about it (None: nothing)."""

    file: str
    old: str
    new: str
    expected: str | None


def _plant(root: Path, fault: Fault) -> Contracts:
    path = root / fault.file
    text = path.read_text(encoding="utf-8")
    assert fault.old in text, f"the fault fits nothing in {fault.file}"
    path.write_text(text.replace(fault.old, fault.new, 1), encoding="utf-8")
    return contract_comments.load(root)


def _rows(contracts: Contracts) -> set[tuple[str, str, str]]:
    return {(row.service, row.reason, row.code) for row in contract_comments.error_rows(contracts)}


def _planned_reasons(contracts: Contracts, register: list[ErrorEntry]) -> frozenset[str]:
    known = contract_comments.services(contracts)
    return frozenset(entry.reason for entry in register if entry.service not in known)


@pytest.mark.parametrize("name", KINDS)
def test_kind_documents_answer_all_nineteen_rows(documents: dict[str, Document], name: str) -> None:
    """Each kind's contract document has ARCH-29's nineteen rows in order, each with prose and a check."""
    problems = contract_documents.row_problems(documents[name])
    assert not problems, "\n".join(problems)


def test_named_checks_exist(documents: dict[str, Document]) -> None:
    """Every check and sabotage names a test that exists, or a planned one that the document defines."""
    problems = [
        problem for document in documents.values() for problem in contract_documents.check_problems(document)
    ]
    assert not problems, "\n".join(problems)


def test_each_invariant_has_one_owner_a_check_and_a_sabotage(documents: dict[str, Document]) -> None:
    """Each kernel invariant has exactly one owner module, an observable check and a registered sabotage."""
    problems = contract_documents.invariant_problems(documents["kernel-invariants.md"])
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    "path", sorted(contract_documents.CONTRACTS.glob("*.md")), ids=lambda path: path.name
)
def test_planned_checks_are_reported_and_never_pass(path: Path) -> None:
    """What is only planned in a document is reported with its number and does not count as passed."""
    text = path.read_text(encoding="utf-8")
    names = contract_documents.planned(contract_documents.parse(path.name, text))
    names += [
        f"{entry.service.rpartition('.')[2]}/{entry.reason}"
        for entry in contract_documents.error_register(text)
        if entry.test is None
    ]
    if names:
        pytest.skip(f"PLANNED: {len(names)} checks of {path.name}, from {names[0]} to {names[-1]}")


def test_error_tables_agree_with_the_registered_reasons(
    contracts: Contracts, register: list[ErrorEntry]
) -> None:
    """Reasons in the error tables are the registered ones, each with the one code that it states."""
    problems = contract_comments.table_problems(contracts, _planned_reasons(contracts, register))
    assert not problems, "\n".join(problems)


def test_every_reason_of_every_service_is_provoked_or_planned(
    contracts: Contracts, register: list[ErrorEntry]
) -> None:
    """The register lists each service's reasons exactly, each with a test that names it, or as planned."""
    problems = contract_documents.register_problems(register, _rows(contracts))
    assert not problems, "\n".join(problems)


def test_every_call_states_idempotency_and_deadline(contracts: Contracts) -> None:
    """Each RPC says whether it is idempotent or free of effects, and what deadline a caller sets."""
    problems = contract_comments.call_problems(contracts)
    assert not problems, "\n".join(problems)


def test_every_request_field_is_required_or_optional(contracts: Contracts) -> None:
    """Each field that can stand in a request says REQUIRED or OPTIONAL, flags and oneof members excepted."""
    problems = contract_comments.field_problems(contracts)
    assert not problems, "\n".join(problems)


def test_everybody_knows_the_same_claims(contracts: Contracts) -> None:
    """Document, wire contract, kernel, built-in provider and conformance list the same claims."""
    text = (contract_documents.CONTRACTS / "isolation.md").read_text(encoding="utf-8")
    registry = contract_documents.claim_registry(text)
    assert len(registry) == len(CLAIMS) == 20
    assert contract_comments.claim_registry(contracts) == registry
    assert tuple(registry) == CLAIMS == tuple(NOT_ENFORCED) == CONFORMING


def test_decisions_are_short_and_listed() -> None:
    """Each decision record has its four parts within 50 lines, and the index links exactly these."""
    directory = contract_documents.ROOT / "docs" / "decisions"
    records = sorted(path for path in directory.glob("*.md") if path.name != "README.md")
    for record in records:
        text = record.read_text(encoding="utf-8")
        parts = re.findall(r"^\*\*(Context|Decision|Rejected|Consequences)\.\*\*", text, re.MULTILINE)
        wanted = ["Context", "Decision", "Rejected", "Consequences"]
        assert [part for part in wanted if part in parts] == wanted, record
        assert len(text.splitlines()) <= MAX_DECISION_LINES, record
    index = re.findall(
        r"^\| \[\d{4}\]\((.+?)\) \|", (directory / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert index == [record.name for record in records]


ISOLATION = "tyrum/isolation/v1/isolation.proto"
CHAT = "tyrum/chat/v1/chat.proto"


@pytest.mark.parametrize(
    ("find", "fault"),
    [
        pytest.param(
            contract_comments.table_problems,
            Fault(
                ISOLATION,
                "| PROCESS_RUNNING |",
                "| PROCESS_BUSY |",
                "reason `PROCESS_BUSY` is not registered",
            ),
            id="unregistered reason",
        ),
        pytest.param(
            contract_comments.table_problems,
            Fault(
                ISOLATION, "| PROCESS_RUNNING |", "| CONFIG_INVALID |", "PROCESS_RUNNING: in no error table"
            ),
            id="reason in no table",
        ),
        pytest.param(
            contract_comments.table_problems,
            Fault(
                ISOLATION,
                "| DEADLINE_EXCEEDED | WAIT_EXPIRED",
                "| UNAVAILABLE | WAIT_EXPIRED",
                "`WAIT_EXPIRED` is DEADLINE_EXCEEDED, the table says UNAVAILABLE",
            ),
            id="second code for a reason",
        ),
        pytest.param(
            contract_comments.table_problems,
            Fault(
                ISOLATION,
                "| PROCESS_RUNNING | cancel and wait first",
                "| PROCESS_RUNNING",
                "ReleaseProcess: not four columns",
            ),
            id="row without advice",
        ),
        pytest.param(
            contract_comments.table_problems,
            Fault(
                ISOLATION,
                "// Errors common to all RPCs:\n//   condition ",
                "// Errors common to all RPCs:\n//   when ",
                "IsolationService: no table of common errors",
            ),
            id="service without common errors",
        ),
        pytest.param(
            contract_comments.table_problems,
            Fault(
                contract_comments.ERRORS,
                "the service logged the details.\n",
                "the service logged the details. Never ABORTED.\n  // It is bad.\n",
                None,
            ),
            id="prose does not change a code",
        ),
        pytest.param(
            contract_comments.table_problems,
            Fault(
                contract_comments.ERRORS,
                "Stored state is damaged. DATA_LOSS.",
                "Stored state is damaged.",
                "`STORE_CORRUPT` is INTERNAL, the table says DATA_LOSS",
            ),
            id="registration without its code",
        ),
        pytest.param(
            contract_comments.call_problems,
            Fault(ISOLATION, "a restart of the provider. Before", "a restart. Before", None),
            id="other words change nothing",
        ),
        pytest.param(
            contract_comments.call_problems,
            Fault(
                ISOLATION,
                "without waiting. Free of effects. Deadline",
                "without waiting. Deadline",
                "GetProcess: neither `Idempotent` nor `Free of effects`",
            ),
            id="RPC without idempotency",
        ),
        pytest.param(
            contract_comments.call_problems,
            Fault(
                ISOLATION,
                "without waiting. Free of effects. Deadline at most 2 s.",
                "without waiting. Free of effects.",
                "GetProcess: no deadline",
            ),
            id="RPC without deadline",
        ),
        pytest.param(
            contract_comments.call_problems,
            Fault(
                CHAT,
                "one turn. Free of effects. Deadline 10 s.",
                "one turn. Free of effects.",
                "GetTurn: no deadline",
            ),
            id="client RPC without deadline",
        ),
        pytest.param(
            contract_comments.field_problems,
            Fault(
                ISOLATION,
                "// Wall-clock limit from the start of the command. REQUIRED, 1 ms to 24 h.",
                "// Wall-clock limit from the start of the command.",
                "ProcessLimits.wall_time: neither REQUIRED nor OPTIONAL",
            ),
            id="nested request field without a rule",
        ),
    ],
)
def test_planted_faults_in_contracts_are_found(
    proto_copy: Path, find: Callable[[Contracts], list[str]], fault: Fault
) -> None:
    """Each rule about the contracts' comments names the fault that was planted, and nothing without one."""
    before = find(contract_comments.load(proto_copy))
    found = [problem for problem in find(_plant(proto_copy, fault)) if problem not in before]

    if fault.expected is None:
        assert not found
    else:
        assert any(fault.expected in problem for problem in found), found


def _without_row(text: str) -> str:
    return text.replace("## 7. Canonical types", "### Canonical types")


def _rows_swapped(text: str) -> str:
    swapped = text.replace("## 3. Cardinality", "## 3. CARD").replace(
        "## 4. Selection scope", "## 4. Cardinality"
    )
    return swapped.replace("## 3. CARD", "## 3. Selection scope")


def _row_without_check(text: str) -> str:
    head, rest = text.split("## 3. Cardinality", 1)
    body, tail = rest.split("## 4.", 1)
    kept = [line for line in body.splitlines() if not line.startswith("- Check:")]
    return f"{head}## 3. Cardinality\n" + "\n".join(kept) + f"\n## 4.{tail}"


def _row_without_prose(text: str) -> str:
    head, rest = text.split("## 3. Cardinality", 1)
    return f"{head}## 3. Cardinality\n\n- Check: PLANNED MEM-24\n\n## 4." + rest.split("## 4.", 1)[1]


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        pytest.param(_without_row, "18 numbered rows, not 19", id="row missing"),
        pytest.param(_rows_swapped, "row 3 is `Selection scope`", id="rows swapped"),
        pytest.param(_row_without_check, "row `Cardinality` names no check", id="row without check"),
        pytest.param(_row_without_prose, "row `Cardinality` says nothing", id="row without answer"),
    ],
)
def test_planted_faults_in_rows_are_found(spoil: Callable[[str], str], expected: str) -> None:
    """A missing, misplaced, unchecked or unanswered row of a kind's document is named."""
    text = (contract_documents.CONTRACTS / "memory.md").read_text(encoding="utf-8")
    problems = contract_documents.row_problems(contract_documents.parse("memory.md", spoil(text)))
    assert any(expected in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "Check: tests/meta/test_contract_documents.py::test_gone",
            "no test `tests/meta/test_contract_documents.py::test_gone`",
            id="test missing",
        ),
        pytest.param(
            "Check: tests/meta/gone.py::test_x", "no test `tests/meta/gone.py::test_x`", id="file missing"
        ),
        pytest.param(
            "Sabotage: PLANNED ISO-99", "planned check `ISO-99` is in no table", id="planned undefined"
        ),
        pytest.param("| MEM-01 | again | again |", "check id `MEM-01` is defined twice", id="defined twice"),
    ],
)
def test_planted_faults_in_checks_are_found(line: str, expected: str) -> None:
    """A check that does not exist, and a planned one that is undefined or ambiguous, is named."""
    text = f"## 1. Row\n| MEM-01 | what | who |\n- Check: PLANNED MEM-01\n{line}\n"
    assert contract_documents.check_problems(contract_documents.parse("x.md", text)) == [f"x.md: {expected}"]


def test_a_check_in_no_known_form_is_refused() -> None:
    """A check that is neither a test's id nor planned is refused with its place: prose is no proof."""
    with pytest.raises(contract_documents.DocumentError, match=r"x\.md:2: `by review`"):
        contract_documents.parse("x.md", "## Row\n- Check: by review\n")


def test_planned_checks_are_not_tests() -> None:
    """A planned check is kept apart from tests wherever checks are read, and counted once."""
    text = "## Row\n- Check: PLANNED ISO-01 words\n- Check: PLANNED ISO-01\n- Check: tests/a.py::test_b\n"
    document = contract_documents.parse("x.md", text)
    assert document.checks == [Planned("ISO-01"), Planned("ISO-01"), TestId("tests/a.py", "test_b")]
    assert contract_documents.planned(document) == ["ISO-01"]


INVARIANT = """## Invariants
### INV-01 Something holds
Owner: tests/support/contract_documents.py
- Check: PLANNED KERN-01
- Sabotage: PLANNED SABO-01
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(
            "Owner: tests", "Owner: a.py\nOwner: tests", "INV-01 has 2 owners, not 1", id="two owners"
        ),
        pytest.param("- Check: PLANNED KERN-01\n", "", "INV-01 has no check", id="no check"),
        pytest.param("- Sabotage: PLANNED SABO-01\n", "", "INV-01 has no sabotage", id="no sabotage"),
        pytest.param("INV-01", "INV-02", "ids are not consecutive", id="gap"),
        pytest.param(
            "tests/support/contract_documents.py\n- Check: PLANNED KERN-01",
            "gone.py\n- Check: tests/a.py::test_b",
            "INV-01 is tested but its owner `gone.py` does not exist",
            id="owner missing",
        ),
    ],
)
def test_planted_faults_in_invariants_are_found(old: str, new: str, expected: str) -> None:
    """An invariant without exactly one owner, a check and a sabotage, or with a lost owner, is named."""
    assert not contract_documents.invariant_problems(contract_documents.parse("x.md", INVARIANT))
    problems = contract_documents.invariant_problems(
        contract_documents.parse("x.md", INVARIANT.replace(old, new))
    )
    assert problems == [f"x.md: {expected}"]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param("", "tyrum.x.X A_B INTERNAL: in an error table, not in the register", id="unlisted"),
        pytest.param(
            "| tyrum.x.X | A_B | NOT_FOUND | PLANNED |",
            "tyrum.x.X A_B NOT_FOUND: in the register, in no error table",
            id="other code",
        ),
        pytest.param(
            "| tyrum.x.X | A_B | INTERNAL | tests/meta/test_proto_drift.py::test_gone |",
            "tyrum.x.X A_B: no test `tests/meta/test_proto_drift.py::test_gone`",
            id="test missing",
        ),
        pytest.param(
            "| tyrum.x.X | A_B | INTERNAL | tests/meta/test_proto_drift.py::test_digests_are_package_data |",
            "tyrum.x.X A_B: `tests/meta/test_proto_drift.py` never names the reason",
            id="test about something else",
        ),
        pytest.param(
            "| tyrum.x.X | A_B | INTERNAL | PLANNED |\n| tyrum.x.X | A_B | INTERNAL | PLANNED |",
            "a reason of a service is listed twice",
            id="listed twice",
        ),
    ],
)
def test_planted_faults_in_the_error_register_are_found(row: str, expected: str) -> None:
    """A reason that is unlisted, listed with another code, or whose test is missing or unrelated is named."""
    entries = contract_documents.error_register(row)
    problems = contract_documents.register_problems(entries, {("tyrum.x.X", "A_B", "INTERNAL")})
    assert expected in problems


def test_an_unbuilt_service_can_only_plan() -> None:
    """A service without error tables may announce reasons as planned and may not claim tests."""
    tested = "| tyrum.y.Y | A_B | INTERNAL | tests/meta/test_proto_drift.py::test_digests_are_package_data |"
    assert not contract_documents.register_problems(
        contract_documents.error_register("| tyrum.y.Y | A_B | INTERNAL | PLANNED |"), set()
    )
    assert (
        "tyrum.y.Y A_B: tested, but the service has no error table"
        in contract_documents.register_problems(contract_documents.error_register(tested), set())
    )


def test_a_register_row_in_no_known_form_is_refused() -> None:
    """A row that names neither a test nor PLANNED is refused, so that nothing passes by being unreadable."""
    with pytest.raises(contract_documents.DocumentError, match="neither a test nor `PLANNED`"):
        contract_documents.error_register("| tyrum.x.X | A_B | INTERNAL | by hand |")
