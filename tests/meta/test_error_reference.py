"""The reference page of error reasons is what contracts and gateway say, and both say the same."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import contract_comments
from tyrum_gateway.domain import errors
from tyrum_gateway.domain.errors import TABLE, TyrumError
from tyrum_gateway.rpc import reference

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/errors.md"


@pytest.fixture(scope="module")
def registered() -> dict[str, str]:
    """Every registered reason with its gRPC code, as protoc reads the contract."""
    return contract_comments.registered_reasons(contract_comments.load())


def below(kind: type[TyrumError]) -> Iterator[type[TyrumError]]:
    """The classes of the gateway's error tree below one of them."""
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
        yield from below(child)


def test_the_page_is_up_to_date() -> None:
    """docs/reference/errors.md is what the contracts generate."""
    assert PAGE.read_text(encoding="utf-8") == reference.render(), (
        "run .venv/bin/python -m tyrum_gateway.rpc.reference > docs/reference/errors.md"
    )


def test_the_page_has_every_registered_reason_under_its_code(registered: dict[str, str]) -> None:
    """The page reads the contract's text as protoc does: every reason once, in order, with the same code."""
    rows = [row for block in reference.blocks() for row in block.reasons]
    assert [row.name for row in rows] == list(registered)
    assert {row.name: row.code for row in rows} == registered
    assert {row.name: row.exit_code for row in rows if row.exit_code is not None} == {
        row.reason: row.exit_code for row in TABLE.values()
    }


def test_every_error_of_the_gateway_is_translated() -> None:
    """Each class of the error tree has a row of the table, its own or that of a parent."""
    classes = list(below(TyrumError))
    assert len(classes) >= len(TABLE)
    assert [kind.__name__ for kind in classes if not any(parent in TABLE for parent in kind.__mro__)] == []


def test_the_gateway_sends_each_reason_under_its_registered_code(registered: dict[str, str]) -> None:
    """Reason and code of each row of the gateway's table are those of the contract."""
    rows = {row.reason: row.code for row in TABLE.values()}
    assert rows == {reason: registered.get(reason) for reason in rows}
    assert len(rows) == len(TABLE), "two classes share a reason: give one of them no row of its own"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("  ERROR_REASON_ODD = 1;", "no block"),
        ("  // -- Block: act. NOT_FOUND.\n\n  ERROR_REASON_ODD = 1;", "no meaning"),
        ("  // -- Block: act.\n\n  // Words.\n  ERROR_REASON_ODD = 1;", "no code"),
        ("  // -- Block. NOT_FOUND.\n\n  // Words.\n  ERROR_REASON_ODD = 1;", "what the caller does"),
        ("  reserved 1;", "reserved 1;"),
    ],
)
def test_a_contract_that_says_too_little_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, problem: str
) -> None:
    """A reason without block, meaning, code or advice makes no page, nor does a line in another form."""
    file = tmp_path / "error/v1/error.proto"
    file.parent.mkdir(parents=True)
    file.write_text(f"enum ErrorReason {{\n{value}\n}}\n", encoding="utf-8")
    monkeypatch.setattr(reference, "_contracts", lambda: tmp_path)
    with pytest.raises(reference.ContractUnreadable, match=problem):
        reference.blocks()
