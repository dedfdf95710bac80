"""The checked-in code, image and digests are exactly what the contracts generate."""

import json
import shutil
from importlib import resources
from pathlib import Path

import pytest

import generate


@pytest.fixture
def contracts(tmp_path: Path) -> Path:
    """A private copy of the contracts with everything generated from them."""
    copy = tmp_path / "proto"
    shutil.copytree(generate.ROOT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    generate.generate(copy, source=copy)
    return copy


def test_generated_files_match_their_contracts() -> None:
    """Regenerating from the checked-in contracts changes no byte of what is checked in."""
    problems = generate.drift()
    assert not problems, "\n".join([*problems, "run `make proto` and commit the result"])


def test_drift_names_a_changed_file(contracts: Path) -> None:
    """A generated file edited by hand, a missing one and one without a contract are each named."""
    (contracts / "tyrum/error/v1/error_pb2.py").write_text("# edited\n", encoding="utf-8")
    (contracts / "tyrum/error/v1/error_pb2.pyi").unlink()
    (contracts / "tyrum/error/v1/gone_pb2.py").touch()

    assert generate.drift(contracts) == [
        "proto/tyrum/error/v1/error_pb2.py differs from its contract",
        "proto/tyrum/error/v1/error_pb2.pyi is missing",
        "proto/tyrum/error/v1/gone_pb2.py has no contract",
    ]


@pytest.mark.parametrize(
    ("addition", "changes"),
    [
        pytest.param("// A remark.\n", False, id="comment"),
        pytest.param("message AddedMessage { string name = 1; }\n", True, id="message"),
    ],
)
def test_control_digest_follows_imported_contracts(contracts: Path, addition: str, changes: bool) -> None:
    """The control digest changes with a message in an imported contract, and not with a comment."""
    before = json.loads((contracts / generate.DIGESTS).read_text(encoding="utf-8"))["control"]["digest"]
    imported = contracts / "tyrum/options/v1/options.proto"
    imported.write_text(imported.read_text(encoding="utf-8") + addition, encoding="utf-8")

    generate.generate(contracts, source=contracts)

    after = json.loads((contracts / generate.DIGESTS).read_text(encoding="utf-8"))["control"]["digest"]
    assert (before != after) is changes


def test_digests_are_package_data() -> None:
    """The installed namespace `tyrum` ships the digests a provider author compares with."""
    shipped = resources.files("tyrum") / "contracts" / "digests.json"
    assert json.loads(shipped.read_text(encoding="utf-8"))["control"]["digest"].startswith("sha256:")
