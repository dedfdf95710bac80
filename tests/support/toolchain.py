"""Toolchains some tests need beyond the README's prerequisites.

They are looked for on PATH, and after it in the directories of TYRUM_TOOLCHAINS: tests run with the system's
PATH where toolchains lie elsewhere. A missing one is a visible skip on a developer's machine. Where
TYRUM_REQUIRE_TOOLCHAINS=1 (the gate) one that a test requires is a failure: no promise goes unchecked there.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest


def search_path() -> str:
    """PATH, and behind it the directories where toolchains were said to be."""
    places = (os.environ.get("PATH", os.defpath), os.environ.get("TYRUM_TOOLCHAINS", ""))
    return os.pathsep.join(place for place in places if place)


def require(program: str) -> Path:
    """Find `program` for a test marked `toolchain`; without it skip, or fail in the gate."""
    found = shutil.which(program, path=search_path())
    if found is not None:
        return Path(found)
    if os.environ.get("TYRUM_REQUIRE_TOOLCHAINS") == "1":
        pytest.fail(f"`{program}` is required here and not on PATH")
    pytest.skip(f"`{program}` is not on PATH")


def installed(*programs: str) -> None:
    """Skip, in the gate too, unless every program is there: a language that this machine need not have."""
    missing = [program for program in programs if shutil.which(program, path=search_path()) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def run(
    *command: str | Path, cwd: Path, environment: Mapping[str, str] | None = None, timeout: float = 600
) -> str:
    """Run a command of a toolchain; return what it printed on both streams.

    Raises:
        AssertionError: It failed; the message ends with what it printed.
    """
    words: Sequence[str] = [str(word) for word in command]
    ran = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, "PATH": search_path(), **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )
    assert ran.returncode == 0, f"{words[0]} ended with {ran.returncode}: {ran.stdout[-4000:]}"
    return ran.stdout
