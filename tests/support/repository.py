"""What is committed here, or in an unpacked source distribution what lies here."""

import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_LEFTOVERS = frozenset({".git", ".venv", "__pycache__", "dist", "node_modules", ".hypothesis", "htmlcov"})


@cache
def tracked() -> Sequence[Path]:
    """List the files of the repository, relative to its root; those still to be committed included.

    Ignored files are left out. Without git every file counts but what tools leave behind.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
        ).stdout
        return sorted(Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file())
    found: list[Path] = []
    for directory, names, files in os.walk(ROOT):
        names[:] = [name for name in names if name not in _LEFTOVERS and not name.endswith("_cache")]
        found += [(Path(directory) / file).relative_to(ROOT) for file in files]
    return sorted(found)
