"""The bytes of all files below a directory in which somebody may still be working."""

import os
from contextlib import suppress
from pathlib import Path


def contents(root: Path) -> dict[Path, bytes]:
    """Read every regular file; what goes away meanwhile is left out, links are not followed."""
    found = {}
    for directory, _, names in os.walk(root):
        for path in (Path(directory) / name for name in names):
            with suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink():
                    found[path] = path.read_bytes()
    return found
