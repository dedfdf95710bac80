"""Standing permissions at work: which hold for an agent now, and their end.

Invariants: what was revoked permits nothing from the moment the revocation is acknowledged; what is held in
memory is forgotten around every change of this process, the only one that writes, and held again only when
the fate of every change is known.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from tyrum_gateway.app.finishing import Finishing
from tyrum_gateway.domain import policy
from tyrum_gateway.domain.canonical import Value
from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.ids import OverrideId
from tyrum_gateway.domain.override import Override, outdated, revoke
from tyrum_gateway.domain.ports import Clock, OverrideStore
from tyrum_gateway.domain.principal import Principal

log = structlog.get_logger(__name__)

MOST = 1000
"""Overrides of an agent that are asked; the newest count, and what an older one permits is asked about."""


KERNEL = "kernel"
"""Actor of what no human did."""

_PAGE = 200


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list; it may be empty and still not be the last."""

    overrides: Sequence[Override]
    following: OverrideId | None
    """Where the next page begins; None on the last."""


class Overrides:
    """All agents' overrides."""

    def __init__(self, *, store: OverrideStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._held: dict[str, Sequence[Override]] = {}
        self._changes = 0
        self._changing = 0
        self._unsure = False
        self._finishing = Finishing()

    async def overrides(self, agent: str) -> tuple[policy.Override, ...]:
        """Return what holds for an agent at this moment."""
        now = self._clock.now()
        held = self._held.get(agent)
        if held is None:
            changes = self._changes
            held = await self._store.of_agent(agent, now, MOST)
            if changes == self._changes and not self._changing and not self._unsure:
                self._held[agent] = held
        return tuple(policy.Override(item.override_id, item.rule) for item in held if item.in_force(now))

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Read from the store while the block writes, and afterwards until a change is known to be done."""
        unsure_before = self._unsure
        self._changing += 1
        self._forget()
        try:
            yield
        except BaseException:
            # Whether the store took the change is not known, or it may still take it.
            self._unsure = True
            raise
        else:
            # Changes are taken in their order, so that an earlier one is done as well.
            self._unsure = self._unsure and not unsure_before
        finally:
            self._changing -= 1
            self._forget()

    async def revoke(self, principal: Principal, override_id: OverrideId, reason: str) -> Override:
        """End an override; one that was revoked before is returned as it is.

        Raises:
            NotFound: There is no such override.
        """
        found = await self._store.get(override_id)
        if found.revocation is not None:
            return found
        ended = revoke(found, by=principal.name, reason=reason, now=self._clock.now())
        audit = AuditEntry(
            "override.revoked",
            principal.principal_id,
            override_id,
            {
                "by": principal.name,
                "method": principal.method,
                "from": principal.origin,
                "reason": reason,
            },
        )
        return await self._finishing.run(self._revoke(ended, audit))

    async def supersede(self) -> Sequence[Override]:
        """End what is in force and wider than an override may be by now; return what was ended, newest first.

        Called before the first call is decided.
        """
        superseded: list[Override] = []
        before: OverrideId | None = None
        while True:
            page = await self.page(before, _PAGE, ended=False)
            for item in page.overrides:
                why = outdated(item.rule)
                if not why:
                    continue
                ended = revoke(item, by=KERNEL, reason=f"superseded: {why}", now=self._clock.now())
                details: dict[str, Value] = {"by": KERNEL, "reason": f"superseded: {why}"}
                audit = AuditEntry("override.revoked", KERNEL, item.override_id, details)
                superseded.append(await self._finishing.run(self._revoke(ended, audit)))
            before = page.following
            if before is None:
                return superseded

    async def page(self, before: OverrideId | None, size: int, *, ended: bool) -> Page:
        """Read a page of at most `size`, newest first; of those that ended only when asked to."""
        now = self._clock.now()
        found = await self._store.page(before, size + 1)
        shown = [item for item in found[:size] if ended or item.in_force(now)]
        return Page(shown, found[size - 1].override_id if len(found) > size else None)

    async def _revoke(self, ended: Override, audit: AuditEntry) -> Override:
        with self.changing():
            stored = await self._store.revoke(ended, audit)
        log.info("override_revoked", override=ended.override_id)
        return stored

    def _forget(self) -> None:
        self._changes += 1
        self._held.clear()
