"""One gateway for all tests of the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gateway import RunningGateway, serving


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with the quickstart's configuration."""
    directory: Path = tmp_path_factory.mktemp("gateway")
    with serving(directory) as running:
        yield running
