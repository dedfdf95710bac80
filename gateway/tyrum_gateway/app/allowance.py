"""The tokens that a principal may use in a day: asked before a model is, and told by the commits.

Invariant: what is remembered of a day is what the store had, or what a later commit said.
"""

from datetime import date

from tyrum_gateway.domain.commit import Committed
from tyrum_gateway.domain.ids import PrincipalId
from tyrum_gateway.domain.ports import Clock, Store
from tyrum_gateway.domain.token_day import TokenDay, day_of


class Allowance:
    """The daily tokens of all principals."""

    def __init__(self, *, store: Store, clock: Clock, daily: int | None) -> None:
        """Prepare it.

        Args:
            store: Has the sums.
            clock: Tells which day it is.
            daily: Tokens of a principal in a day; None: any number, and nothing is read.
        """
        self._store = store
        self._clock = clock
        self._daily = daily
        self._day = date.min
        self._used: dict[PrincipalId, int] = {}

    async def require(self, principal_id: PrincipalId) -> None:
        """Check that the principal has tokens left.

        Turns of one principal that ask at the same time are all let through: each is counted when it has
        its answer.

        Raises:
            TokensSpent: None are left today.
        """
        if self._daily is None:
            return
        today = day_of(self._clock.now())
        self._begin(today)
        if principal_id not in self._used:
            self._note(await self._store.token_day(principal_id, today))
        TokenDay(principal_id, today, self._used.get(principal_id, 0)).require(self._daily)

    def committed(self, committed: Committed) -> None:
        """Learn what a commit added to a day."""
        if self._daily is not None and committed.token_day is not None:
            self._note(committed.token_day)

    def _begin(self, day: date) -> None:
        if day > self._day:
            self._day = day
            self._used.clear()

    def _note(self, known: TokenDay) -> None:
        self._begin(known.day)
        if known.day == self._day:
            before = self._used.get(known.principal_id, 0)
            self._used[known.principal_id] = max(before, known.used)
