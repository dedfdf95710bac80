"""Fixtures of the provider host's tests."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.support import Place


@pytest.fixture
def place() -> Iterator[Place]:
    """Give a short place: a socket path has room for 100 bytes only."""
    base = Path(tempfile.mkdtemp(prefix="tyh-"))
    yield Place(base / "state", base / "run")
    shutil.rmtree(base, ignore_errors=True)
