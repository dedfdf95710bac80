"""Streams that run on somebody's behalf, and how they end when that somebody may no longer have them.

Invariants: a stream never outlives the token it was opened with, and ends at once when the token is revoked,
its principal disabled, or a role taken from it; one principal has at most `MOST_STREAMS`.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tyrum_gateway.domain.errors import NotAuthenticated, QuotaExceeded, TyrumError
from tyrum_gateway.domain.ids import PrincipalId, TokenId
from tyrum_gateway.domain.ports import Clock
from tyrum_gateway.domain.principal import Principal, Role

MOST_STREAMS = 512
"""Streams that one principal may have open, over all its connections; what one may cost is bounded too."""

LONGEST_SLEEP = 60.0
"""Seconds after which a token's end is looked at again: clocks are set, and machines sleep."""

_EXPIRED = "the bearer token is not valid any more"


class _Session:
    """One stream: the scope that ends it, and why it was ended."""

    def __init__(self, principal: Principal, scope: asyncio.Timeout, clock: Clock) -> None:
        self.token_id = principal.token_id
        self.roles = principal.roles
        self.cause: TyrumError = NotAuthenticated(_EXPIRED)
        self._expires_at = principal.expires_at
        self._scope = scope
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """End the stream when its token has expired, else look again in time."""
        if self._expires_at is None:
            return
        left = (self._expires_at - self._clock.now()).total_seconds()
        if left <= 0:
            self.end(self.cause)
        else:
            self._timer = asyncio.get_running_loop().call_later(min(left, LONGEST_SLEEP), self.look)

    def end(self, cause: TyrumError) -> None:
        self.cause = cause
        if not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())

    def close(self) -> None:
        """Look no more: the stream is over."""
        if self._timer is not None:
            self._timer.cancel()


class Sessions:
    """All streams by principal."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[PrincipalId, set[_Session]] = {}

    def __len__(self) -> int:
        """Count the streams."""
        return sum(map(len, self._open.values()))

    @asynccontextmanager
    async def during(self, principal: Principal) -> AsyncGenerator[None, None]:
        """Run a stream on a principal's behalf, for as long as it may.

        Raises:
            NotAuthenticated: The token has expired or was revoked, or the principal is disabled.
            NotAuthorized: The principal has lost a role.
            QuotaExceeded: The principal has `MOST_STREAMS` open.
        """
        if len(self._open.get(principal.principal_id, ())) >= MOST_STREAMS:
            raise QuotaExceeded(
                f"you have {MOST_STREAMS} streams open, as many as a principal may: close one, or wait until "
                "one ends",
                principal=principal.principal_id,
            )
        session: _Session | None = None
        mine = self._open.setdefault(principal.principal_id, set())
        try:
            async with asyncio.timeout(None) as scope:
                session = _Session(principal, scope, self._clock)
                mine.add(session)
                session.look()
                yield
        except TimeoutError:
            if session is None or not scope.expired():
                raise
            raise session.cause from None
        finally:
            if session is not None:
                session.close()
                mine.discard(session)
            if not mine and self._open.get(principal.principal_id) is mine:
                del self._open[principal.principal_id]

    def end(self, principal_id: PrincipalId, cause: TyrumError, token_id: TokenId | None = None) -> None:
        """End the streams of a principal, or only those that were opened with one token."""
        for session in self._open.get(principal_id, ()):
            if token_id is None or session.token_id == token_id:
                session.end(cause)

    def demote(self, principal_id: PrincipalId, roles: frozenset[Role], cause: TyrumError) -> None:
        """End the streams of a principal that were opened with a role that it has no more."""
        for session in self._open.get(principal_id, ()):
            if session.roles - roles:
                session.end(cause)
