"""Every kernel invariant's check can fail: under its registered sabotage it goes red."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sabotage.registry import REGISTRY, Sabotage

ROOT = Path(__file__).resolve().parents[2]
INVARIANTS = ROOT / "docs/contracts/kernel-invariants.md"
RED = 1
"""Exit code of pytest when tests failed; any other code means that the check was not even run."""


PLUGINS = ("pytest_asyncio.plugin", "pytest_timeout")
"""What the checks need; all the others would only have to be loaded."""


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("sabotage", REGISTRY, ids=lambda sabotage: sabotage.invariant)
def test_check_goes_red_under_its_sabotage(sabotage: Sabotage, tmp_path: Path) -> None:
    """With the owner module changed as registered, the named check fails."""
    path = Path(sabotage.owner)
    package = next(parent for parent in path.parents if parent.name.startswith("tyrum_"))
    copy = tmp_path / package.name
    shutil.copytree(ROOT / package, copy)
    module = copy / path.relative_to(package)
    shutil.rmtree(module.parent / "__pycache__", ignore_errors=True)
    text = module.read_text(encoding="utf-8")
    assert text.count(sabotage.old) == 1, f"the sabotaged text of {sabotage.invariant} stands elsewhere now"
    module.write_text(text.replace(sabotage.old, sabotage.new), encoding="utf-8")
    properties = ("tests.sabotage.hasty",) if sabotage.check.startswith("tests/domain/") else ()
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            *(option for plugin in PLUGINS + properties for option in ("-p", plugin)),
            sabotage.check,
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TYRUM_TEST_DEADLINE": "12",  # a red check may wait for what never comes
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert run.returncode == RED, f"{sabotage.check} stayed green\n{run.stdout[-2000:]}{run.stderr[-500:]}"


def test_every_invariant_has_its_sabotage_in_its_owner() -> None:
    """The document and the register name the same invariants, owners and checks."""
    sections = re.split(r"^### ", INVARIANTS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    documented = {section.split()[0]: section for section in sections if section.startswith("INV-")}
    assert list(documented) == [sabotage.invariant for sabotage in REGISTRY]
    for sabotage in REGISTRY:
        section = documented[sabotage.invariant]
        owner = re.search(r"^Owner: (\S+)$", section, re.MULTILINE)
        assert owner is not None
        assert owner.group(1) == sabotage.owner
        assert f"- Check: {sabotage.check.partition('[')[0]}\n" in section
