"""The shipped files: quickstart, reference, generated page, and every YAML example."""

import zipfile
from pathlib import Path

import jsonschema
import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.config.files import QUICKSTART
from tests.support.markdown import pages
from tyrum_gateway.config import check_file
from tyrum_gateway.config.cases import CaseFile
from tyrum_gateway.config.document import Mapping, Node, Scalar, Sequence, plain, read_document
from tyrum_gateway.config.model import ConfigFile
from tyrum_gateway.config.reference import keys, render
from tyrum_gateway.config.schema import json_schema
from tyrum_gateway.models.script import load_script

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "examples/reference.yaml"
FREE_NAMES = {
    ("listen", "tls", "principals"),
    ("models",),
    ("providers",),
    ("profiles", "isolation"),
    ("policy",),
}


IN_A_COMMENT = ("agents.default.instructions_file",)
"""Keys that stand in the place of another."""


def content_of(text: str) -> dict[str, object]:
    """Read YAML text without any check of its shape."""
    document = read_document(text.encode(), "f")
    assert document.root is not None, document.problems
    assert not document.problems
    content: dict[str, object] = plain(document.root)
    return content


def test_the_example_is_the_packaged_quickstart() -> None:
    """The file an operator copies is byte for byte the one `tyrum serve` uses."""
    assert (ROOT / "examples/quickstart.yaml").read_text(encoding="utf-8") == QUICKSTART


def test_the_wheel_holds_the_quickstart(tmp_path: Path) -> None:
    """An installed package finds its quickstart without the repository."""
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("tyrum_gateway/config/quickstart.yaml").decode() == QUICKSTART


def _paths(node: Node, path: str = "", place: tuple[str, ...] = ()) -> list[str]:
    match node:
        case Scalar():
            return []
        case Sequence(items=items):
            return [found for item in items for found in _paths(item, f"{path}[]", (*place, "[]"))]
        case Mapping(entries=entries):
            found = []
            for name, entry in entries.items():
                free = place in FREE_NAMES
                below = f"{path}.{'NAME' if free else name}".lstrip(".")
                found += [] if free else [below]
                if below not in {"secrets", "providers.NAME.config", "providers.NAME.secrets"}:
                    found += _paths(entry.value, below, (*place, name))
            return found


def test_the_reference_shows_every_key_once() -> None:
    """The reference file holds every key of the format, and none twice but what each model has to say."""
    root = read_document(REFERENCE.read_bytes(), "f").root
    assert root is not None
    shown = _paths(root)
    assert sorted({*shown, *IN_A_COMMENT}) == sorted(key.path for key in keys())
    assert [
        key for key in IN_A_COMMENT if f"    # {key.split('.')[-1]}: " not in REFERENCE.read_text("utf-8")
    ] == []
    assert {path for path in shown if shown.count(path) > 1} == {
        "models.NAME.api_key",
        "models.NAME.kind",
        "models.NAME.model",
    }


def test_the_reference_explains_every_key() -> None:
    """Every key of the format has a meaning on the generated page."""
    assert [key.path for key in keys() if not key.description] == []


def test_the_page_is_up_to_date() -> None:
    """docs/reference/config.md is what the model generates."""
    page = (ROOT / "docs/reference/config.md").read_text(encoding="utf-8")
    assert page == render(), (
        "run .venv/bin/python -m tyrum_gateway.config.reference > docs/reference/config.md"
    )


@pytest.mark.parametrize("file", [REFERENCE, ROOT / "examples/quickstart.yaml"], ids=lambda file: file.name)
def test_examples_are_valid_as_they_are(file: Path) -> None:
    """Each example passes validation where it lies, without preparation."""
    check_file(file, environment={})


def test_yaml_in_the_documentation_has_the_right_shape(tmp_path: Path) -> None:
    """Each YAML block of a page is accepted: as configuration over the quickstart, as script or as cases."""
    blocks = [block for page in pages() for block in page.blocks if block.language in {"yaml", "yml"}]
    assert blocks
    for block in blocks:
        content = content_of(block.code)
        if "scenarios" in content:
            script = tmp_path / "script.yaml"
            script.write_text(block.code, encoding="utf-8")
            load_script(script)
        elif "cases" in content:
            CaseFile.model_validate(content)
        else:
            ConfigFile.model_validate(content_of(QUICKSTART) | content)


def test_the_example_script_can_be_played() -> None:
    """The script that the reference names is one the scripted model takes."""
    assert len(load_script(ROOT / "examples/script.yaml").scenarios) == 2


def test_the_schema_accepts_what_validation_accepts() -> None:
    """Editors that use the JSON Schema agree with the examples and refuse an unknown key."""
    validator = jsonschema.Draft202012Validator(json_schema())
    jsonschema.Draft202012Validator.check_schema(json_schema())
    for file in (REFERENCE, ROOT / "examples/quickstart.yaml"):
        assert not list(validator.iter_errors(content_of(file.read_text(encoding="utf-8"))))
    assert list(validator.iter_errors(content_of(QUICKSTART) | {"unknown": 1}))
