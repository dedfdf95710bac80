"""Toolchains some tests need beyond the README's prerequisites.

A missing one is a visible skip on a developer's machine and a failure where TYRUM_REQUIRE_TOOLCHAINS=1 (the
gate), so that no promise goes unchecked there.
"""

import os
import shutil
from pathlib import Path

import pytest


def require(program: str) -> Path:
    """Find `program` on PATH for a test marked `toolchain`; without it skip, or fail in the gate."""
    found = shutil.which(program)
    if found is not None:
        return Path(found)
    if os.environ.get("TYRUM_REQUIRE_TOOLCHAINS") == "1":
        pytest.fail(f"`{program}` is required here and not on PATH")
    pytest.skip(f"`{program}` is not on PATH")
