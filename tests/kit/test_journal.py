"""The identity of a journal stays with it, and with nothing else."""

import shutil
from pathlib import Path

import pytest

from tyrum_provider_kit import journal_identity


def test_a_journal_keeps_its_identity(tmp_path: Path) -> None:
    """Every instance of a provider finds the same one, and finds it in a directory that was renamed too."""
    made = journal_identity(tmp_path)
    assert journal_identity(tmp_path) == made
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert journal_identity(moved) == made


@pytest.mark.parametrize("lost", ["removed", "restored", "half removed", "cut short"])
def test_a_journal_that_was_removed_or_restored_is_another_one(tmp_path: Path, lost: str) -> None:
    """Who sees the same identity has lost no record: a copy lacks what was recorded after it was made."""
    journal, backup = tmp_path / "journal", tmp_path / "backup"
    journal.mkdir()
    made = journal_identity(journal)
    match lost:
        case "restored":
            shutil.copytree(journal, backup, copy_function=shutil.copy2)
            shutil.rmtree(journal)
            shutil.copytree(backup, journal, copy_function=shutil.copy2)
        case "removed":
            shutil.rmtree(journal)
            journal.mkdir()
        case "half removed":
            (journal / "journal.id").unlink()
        case _:
            (journal / "journal.origin").write_bytes(b"\xff")
    found = journal_identity(journal)
    assert found != made
    assert journal_identity(journal) == found
