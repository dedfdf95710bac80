"""Keeping signed heads: the audit chain is anchored outside the database, off the way of any turn.

Invariants: a gateway starts only on a database that still holds the row under the last signed head; a head is
signed after the fact, from what is durable. Rows since the last head are unanchored until the next one.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from tyrum_gateway.app.alarms import Alarm, Alarms
from tyrum_gateway.domain.audit import AuditLog, SignedHead
from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.domain.ports import Clock, Store

log = structlog.get_logger(__name__)

COMMITS = 1_000
"""After this many commits a head is signed; a turn with one call is five, and six rows."""

SECONDS = 60.0
"""So long after the first commit without a head one is signed at the latest."""

_TICK = 1.0
_RETRY = 10.0


class Heads(Protocol):
    """Where heads are kept."""

    def append(self, head: SignedHead) -> None:
        """Add a head, durably; may block; raises OSError, also when earlier ones were taken away."""
        ...

    def require_kept(self) -> None:
        """Raise OSError unless the heads added so far are still in place; may block."""
        ...


class Signer(Protocol):
    """Who signs heads."""

    def sign(self, *, sequence: int, row: str, at: int) -> SignedHead:
        """Sign the chain up to a row."""
        ...


class HeadKeeper:
    """Signs heads while the gateway runs; one per gateway."""

    def __init__(
        self,
        *,
        store: Store,
        audit: AuditLog,
        heads: Heads,
        last: SignedHead | None,
        signer: Signer,
        clock: Clock,
        activity: Callable[[], int],
        place: str,
        alarms: Alarms | None = None,
    ) -> None:
        """Prepare.

        Args:
            store: Takes the fact that the anchoring begins.
            audit: The log.
            heads: Where heads are kept.
            last: The newest of them, proved to be the signer's. It is not read again: what came since may be
                anybody's.
            signer: Who signs.
            clock: Time of a head.
            activity: Counts commits of this process; read often, so it must cost nothing.
            place: Names the file of heads, for the operator.
            alarms: Hears of heads that cannot be kept.
        """
        self._store = store
        self._audit = audit
        self._heads = heads
        self._last = last
        self._signer = signer
        self._clock = clock
        self._activity = activity
        self._place = place
        self._alarms = alarms or Alarms()
        self._signed = 0
        """Sequence under the last head."""
        self._commits = 0
        """Activity when it was signed."""

    async def check(self) -> None:
        """Compare the database with the last head, before anything is written.

        Without any head the anchoring begins here; when the log already has rows, that becomes a row itself,
        so that nobody can take the heads away unnoticed.

        Raises:
            StateUnusable: The database does not hold the row that was signed: it is older, or was edited.
        """
        head = self._last
        if head is None:
            await self._begin()
            return
        found = await self._audit.hash_of(head.sequence)
        if found != head.hash:
            what = "is missing" if found is None else "is another one"
            raise StateUnusable(
                f"audit row {head.sequence}, over which a head was signed, {what} in the database: it was "
                "rolled back or edited. Restore the newest database, or move the heads away knowingly: "
                f"`{self._place}`, see docs/guides/audit.md",
                sequence=str(head.sequence),
            )
        self._signed = head.sequence

    async def run(self) -> None:
        """Sign now and then, until cancelled; a head that cannot be kept is reported and tried again."""
        loop = asyncio.get_running_loop()
        waiting_since: float | None = None
        while True:
            await asyncio.sleep(_TICK)
            await self.look()
            commits = self._activity() - self._commits
            if not commits:
                continue
            waiting_since = loop.time() if waiting_since is None else waiting_since
            if commits >= COMMITS or loop.time() - waiting_since >= SECONDS:
                if await self.sign():
                    waiting_since = None
                else:
                    await asyncio.sleep(_RETRY)

    async def sign(self) -> bool:
        """Sign what is durable now; tell whether the newest row has a head."""
        try:
            await self._sign()
        except (OSError, StateUnusable) as error:
            self._alarms.raised(Alarm.AUDIT_HEADS, error)
            log.warning("audit_head_failed", file=self._place, reason=str(error))
            return False
        self._alarms.ended(Alarm.AUDIT_HEADS)
        return True

    async def look(self) -> None:
        """Raise the alarm when the heads are not there any more as this gateway left them."""
        if self._alarms.active(Alarm.AUDIT_HEADS):
            return
        try:
            await asyncio.to_thread(self._heads.require_kept)
        except OSError as error:
            self._alarms.raised(Alarm.AUDIT_HEADS, error)

    async def sign_or_fail(self) -> None:
        """Sign what is durable now, at the start.

        Raises:
            StateUnusable: The head cannot be kept.
        """
        try:
            await self._sign()
        except OSError as error:
            raise StateUnusable(
                f"cannot append to the audit heads `{self._place}`: {error.strerror or error}"
            ) from error

    async def _sign(self) -> None:
        commits = self._activity()
        newest = await self._audit.head()
        if newest is not None and newest[0] > self._signed:
            sequence, row = newest
            at = _microseconds(self._clock.now())
            await asyncio.to_thread(self._keep, sequence, row, at)
            self._signed = sequence
        self._commits = commits

    def _keep(self, sequence: int, row: str, at: int) -> None:
        self._heads.append(self._signer.sign(sequence=sequence, row=row, at=at))

    async def _begin(self) -> None:
        newest = await self._audit.head()
        if newest is None:
            return
        entry = AuditEntry(
            "audit.heads_begun",
            "kernel",
            "gateway",
            {"rows_before": newest[0], "reason": "no signed head was found"},
        )
        await self._store.record((entry,), self._clock.now())
        log.warning("audit_heads_begun", rows_before=newest[0], file=self._place)


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
