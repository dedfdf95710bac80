"""The scripted model server, one for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.support.model_server import ModelServer


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """Serve; whatever a request had wrong ends the test."""
    async with ModelServer() as running:
        yield running
