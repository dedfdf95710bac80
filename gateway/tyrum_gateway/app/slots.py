"""Waiting for a slot to work on a turn; who gets one is decided by `domain.turn_slots`."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from tyrum_gateway.domain.ids import PrincipalId
from tyrum_gateway.domain.turn_slots import Ticket, TurnSlots


class Slots:
    """The slots of one engine."""

    def __init__(self, total: int) -> None:
        """Prepare so many slots, >= 1."""
        self._state = TurnSlots(total)
        self._tickets = map(Ticket, itertools.count())
        self._waiting: dict[Ticket, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def held(self, principal_id: PrincipalId) -> AsyncIterator[None]:
        """Wait until the principal has a slot, and hold it for the context.

        The wait has no deadline of its own: it ends with the work of others, each of which has one.
        """
        ticket = next(self._tickets)
        granted = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        try:
            self._state, begun = self._state.asked(principal_id, ticket)
            self._begin(begun)
            await granted
        except asyncio.CancelledError:
            if self._waiting.pop(ticket, None) is None:
                self._release(principal_id)  # it was given and not taken
            else:
                self._state, begun = self._state.withdrawn(principal_id, ticket)
                self._begin(begun)
            raise
        try:
            yield
        finally:
            self._release(principal_id)

    def _release(self, principal_id: PrincipalId) -> None:
        self._state, begun = self._state.released(principal_id)
        self._begin(begun)

    def _begin(self, begun: Iterable[Ticket]) -> None:
        for ticket in begun:
            granted = self._waiting.pop(ticket)
            if not granted.done():  # else it was cancelled just now, and gives the slot back
                granted.set_result(None)
