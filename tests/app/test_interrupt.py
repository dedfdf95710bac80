"""Whoever awaits work of a turn goes on, whatever the work does with its cancellation."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tyrum_gateway.app import interrupt
from tyrum_gateway.app.interrupt import Interrupted, Interrupts
from tyrum_gateway.domain.ids import TurnId

TURN = TurnId.build(1, b"turn000000")
PATIENCE = 5.0
"""Seconds after which a test gives up; work that ignores cancellation would hold it for ever."""


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work gets a moment to end."""
    monkeypatch.setattr(interrupt, "GRACE_SECONDS", 0.05)


class Stubborn:
    """Work that ends when it is released, and not when it is cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cancelled = False
        self.ended = asyncio.Event()
        self._released = asyncio.Event()

    async def work(self) -> str:
        """Go on."""
        self.begun.set()
        while not self._released.is_set():
            try:
                await self._released.wait()
            except asyncio.CancelledError:
                self.cancelled = True
        self.ended.set()
        return "too late"

    @asynccontextmanager
    async def until_released(self) -> AsyncIterator[None]:
        """Release it at the end."""
        try:
            async with asyncio.timeout(PATIENCE):
                yield
        finally:
            self._released.set()
            await self.ended.wait()


async def test_a_deadline_is_kept_against_work_that_ignores_cancellation() -> None:
    """When the deadline is over the work is told to end, and nobody waits longer than the grace for it."""
    interrupts, stubborn = Interrupts(), Stubborn()
    async with stubborn.until_released():
        with interrupts.working(TURN), pytest.raises(TimeoutError):
            await interrupts.run(TURN, stubborn.work(), seconds=0.05)
        assert stubborn.cancelled
        assert not stubborn.ended.is_set()


async def test_an_interrupt_ends_the_waiting_for_work_that_ignores_it() -> None:
    """A turn that is settled by somebody else does not wait for its work."""
    interrupts, stubborn = Interrupts(), Stubborn()
    async with stubborn.until_released():
        with interrupts.working(TURN):
            running = asyncio.create_task(interrupts.run(TURN, stubborn.work()))
            await stubborn.begun.wait()
            interrupts.interrupt(TURN)
            with pytest.raises(Interrupted):
                await running
        assert not stubborn.ended.is_set()


async def test_a_runner_that_is_cancelled_does_not_wait_for_its_work() -> None:
    """A gateway that stops, or a turn whose time is over, leaves work behind that does not end."""
    interrupts, stubborn = Interrupts(), Stubborn()
    async with stubborn.until_released():
        with interrupts.working(TURN):
            running = asyncio.create_task(interrupts.run(TURN, stubborn.work()))
            await stubborn.begun.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert not stubborn.ended.is_set()


async def test_an_interrupt_between_two_pieces_of_work_keeps_the_next_from_beginning() -> None:
    """What was settled while its runner was busy elsewhere begins nothing more."""
    interrupts, stubborn = Interrupts(), Stubborn()
    with interrupts.working(TURN):
        interrupts.interrupt(TURN)
        with pytest.raises(Interrupted):
            await interrupts.run(TURN, stubborn.work())
    assert not stubborn.begun.is_set()


async def test_work_that_ends_by_itself_says_how() -> None:
    """A result and an error come through, and so does a cancellation that the work brought on itself."""

    async def fail() -> None:
        raise ValueError("of its own")

    async def end() -> str:
        return "done"

    async def cancel() -> None:
        raise asyncio.CancelledError

    interrupts = Interrupts()
    with interrupts.working(TURN):
        assert await interrupts.run(TURN, end(), seconds=PATIENCE) == "done"
        with pytest.raises(ValueError, match="of its own"):
            await interrupts.run(TURN, fail())
        with pytest.raises(Interrupted):
            await interrupts.run(TURN, cancel())
    interrupts.interrupt(TURN)  # of a turn that is not in work any more: harmless


async def test_work_that_fails_in_the_moment_of_a_cancellation_leaves_no_error_behind() -> None:
    """Its error is taken note of here, and not written to the log by the loop, as a surprise."""
    surprises, waiting = list[object](), list[asyncio.Task[None]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: surprises.append(context))

    async def fail() -> None:
        waiting[0].cancel()
        raise ValueError("too late for anybody")

    interrupts = Interrupts()
    with interrupts.working(TURN):
        waiting.append(asyncio.create_task(interrupts.run(TURN, fail())))
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
    waiting.clear()
    await asyncio.sleep(0)  # the loop forgets the work, too
    gc.collect()
    assert surprises == []
