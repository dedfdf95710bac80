"""Waits that share one timer still end each."""

import asyncio

import pytest

from tyrum_gateway.storage.overdue import Overdue


async def test_each_wait_that_takes_too_long_ends() -> None:
    """What nobody answers in time gets the error, whenever it was added; what was answered keeps that."""
    overdue = Overdue(0.05, lambda: RuntimeError("too slow"))

    def waiting() -> asyncio.Future[str]:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        overdue.add(future)
        return future

    answered, first, given_up = waiting(), waiting(), waiting()
    answered.set_result("in time")
    given_up.cancel()
    async with asyncio.timeout(20):
        with pytest.raises(RuntimeError, match="too slow"):
            await first
        for late in (waiting(), waiting()):  # nothing was left to watch, and then two were
            with pytest.raises(RuntimeError, match="too slow"):
                await late
    assert await answered == "in time"
    assert given_up.cancelled()
    assert not overdue._waiting
    overdue.close()
