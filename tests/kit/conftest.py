"""Provider processes that end with their test."""

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.processes import DEADLINE, Started, hang_up, start, stop


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="tk-") as name:
        yield Path(name)


@pytest.fixture
async def launch(directory: Path) -> AsyncIterator[Callable[..., Started]]:
    """Start providers that are ended after the test."""
    running: list[Started] = []

    def begin(*command: str, **options: Any) -> Started:
        place = directory / str(len(running))
        place.mkdir()
        running.append(start(place, command, **options) if command else start(place, **options))
        return running[-1]

    yield begin
    for started in running:
        await stop(started)


@pytest.fixture
async def sample(launch: Callable[..., Started]) -> Started:
    """The sample provider, listening, not configured."""
    return await launch().listening()


@pytest.fixture
async def configured(sample: Started) -> Started:
    """The sample provider, configured."""
    await sample.configure()
    return sample


@contextmanager
def _until_module_ends() -> Iterator[Started]:
    with tempfile.TemporaryDirectory(prefix="tk-") as name:
        started = start(Path(name))
        try:
            yield started
        finally:
            hang_up(started)
            started.process.wait(DEADLINE)


@asynccontextmanager
async def _own_channel(process: Started) -> AsyncIterator[Started]:
    view = replace(process, channel=None)
    yield await view.listening()
    if view.channel is not None:
        await view.channel.close()


@pytest.fixture(scope="module")
def one_process() -> Iterator[Started]:
    """One process for all tests of a module that change nothing."""
    with _until_module_ends() as started:
        yield started


@pytest.fixture(scope="module")
def another_process() -> Iterator[Started]:
    """Another one, which the first test configures."""
    with _until_module_ends() as started:
        yield started


@pytest.fixture
async def shared(one_process: Started) -> AsyncIterator[Started]:
    """The module's sample provider, listening, never configured."""
    async with _own_channel(one_process) as view:
        yield view


@pytest.fixture
async def shared_configured(another_process: Started) -> AsyncIterator[Started]:
    """The module's other sample provider, configured."""
    async with _own_channel(another_process) as view:
        await view.configure()
        yield view
