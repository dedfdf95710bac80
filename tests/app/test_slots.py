"""Waiting for a slot: whoever gives up leaves its place, and a slot that was given to it, to the next."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.storage.builders import new
from tyrum_gateway.app.slots import Slots
from tyrum_gateway.domain.ids import PrincipalId


@pytest.mark.parametrize("given", [False, True])
async def test_a_slot_is_not_lost_with_who_waited_for_it(given: bool) -> None:
    """Cancelled while it waits, and cancelled between being given the slot and taking it."""
    slots, anna = Slots(1), new(PrincipalId)
    order: list[str] = []

    async def work(name: str) -> None:
        async with slots.held(anna):
            order.append(name)

    async with AsyncExitStack() as first:
        await first.enter_async_context(slots.held(anna))
        second, third = (asyncio.create_task(work(name)) for name in ("second", "third"))
        await asyncio.sleep(0)
        if given:
            await first.aclose()  # nobody else runs until the next line
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
    async with asyncio.timeout(5):
        await third
    assert order == ["third"]
    assert (slots._state.free, dict(slots._state.waiting)) == (1, {})
