"""The time of turns in work, told by a clock that nobody can set.

Invariant: while a gateway works on a turn, its row says how long that took, also when the wall clock is set:
then `working_since` moves along (INV-26). What no gateway saw is told by the wall clock alone, and therefore
bounded where it is charged.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tyrum_gateway.domain.ids import TurnId
from tyrum_gateway.domain.ports import Clock
from tyrum_gateway.domain.states import TurnState
from tyrum_gateway.domain.turn import Turn

JUMP = timedelta(seconds=1)
"""By less the two clocks may differ between two commits without the wall clock having been set."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment on both clocks."""

    at: datetime
    steady: float
    """Seconds of the clock that deadlines are kept by."""


class WorkingTime:
    """Watches the wall clock between the commits of turns in work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[TurnId, Moment] = {}

    def now(self) -> Moment:
        """Look at both clocks."""
        return Moment(self._clock.now(), asyncio.get_running_loop().time())

    @contextmanager
    def measured(self, turn: Turn) -> Iterator[None]:
        """Measure a turn, as stored, while it is worked on here: from now on, not from its last commit."""
        now = self.now()
        self._last[turn.turn_id] = Moment(turn.changed_at or now.at, now.steady)
        try:
            yield
        finally:
            del self._last[turn.turn_id]

    def corrected(self, before: Turn, after: Turn, moment: Moment) -> Turn:
        """Leave out of a transition's working time what did not pass while it was measured."""
        last, since = self._last.get(after.turn_id), after.working_since
        if last is None or since is None or before.state is not TurnState.RUNNING:
            return after
        jump = moment.at - last.at - timedelta(seconds=moment.steady - last.steady)
        return after if abs(jump) < JUMP else replace(after, working_since=since + jump)

    def committed(self, turn_id: TurnId, moment: Moment) -> None:
        """Note when a transition was made."""
        if turn_id in self._last:
            self._last[turn_id] = moment
