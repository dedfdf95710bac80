"""The run registry's desk: who may see which runs, and pages of them.

Invariant: a page looks at a bounded number of rows, whatever the filters; without a role over all
conversations, a principal sees its own runs and no others.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from tyrum_gateway.domain.errors import InvalidRequest, NotFound
from tyrum_gateway.domain.ids import PrincipalId, TurnId
from tyrum_gateway.domain.principal import Principal, Role
from tyrum_gateway.domain.principal_store import PrincipalStore
from tyrum_gateway.domain.run import Run, RunEntry, RunFilter, RunLog

_SEES_ALL = frozenset({Role.OPERATOR, Role.AUDITOR, Role.ADMIN})

LOOKED_AT = 1_000
"""Turns that one page looks at."""

HELD_BYTES = 4 * 1024 * 1024
"""About how many bytes of runs one page holds; a run always fits."""

_BATCH = 200
_SLACK = timedelta(minutes=1)
"""How far the order of ids and that of times may differ: within a millisecond, or when the clock was set."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """Runs, and where the next page begins."""

    runs: tuple[Run, ...]
    next: TurnId | None
    """None on the last page."""


class RunDesk:
    """What the registry's readers may do."""

    def __init__(self, runs: RunLog, principals: PrincipalStore) -> None:
        self._runs = runs
        self._principals = principals

    async def principal(self, principal: Principal, wanted: str) -> PrincipalId:
        """Find whose runs are wanted, by id or name.

        Raises:
            InvalidRequest: It is no id, and no name of a principal whose runs the caller may see.
        """
        if wanted.startswith(f"{PrincipalId.prefix}_"):
            return PrincipalId.parse(wanted, "filter.principal_id")
        if wanted == principal.name:
            return principal.principal_id
        if principal.roles & _SEES_ALL:
            with suppress(NotFound):
                return (await self._principals.account(wanted)).principal_id
        raise InvalidRequest("filter.principal_id", "names no principal whose runs you may see")

    async def run(self, principal: Principal, turn_id: TurnId) -> Run:
        """Read a run.

        Raises:
            NotFound: It does not exist or is not visible.
        """
        found = await self._runs.run(turn_id)
        if found.principal_id != principal.principal_id and not principal.roles & _SEES_ALL:
            raise NotFound("turn", turn_id)
        return found

    async def page(
        self, principal: Principal, chosen: RunFilter, before: TurnId | None, size: int
    ) -> RunPage:
        """List runs, newest first, beginning after `before`."""
        if not principal.roles & _SEES_ALL:
            if chosen.principal_id not in {None, principal.principal_id}:
                return RunPage((), None)
            chosen = replace(chosen, principal_id=principal.principal_id)
        picked: list[TurnId] = []
        last, looked_at = before, 0
        while looked_at < LOOKED_AT:
            entries = await self._runs.entries(last, _BATCH, chosen.conversation_id, chosen.principal_id)
            for entry in entries:
                if chosen.since is not None and entry.created_at + _SLACK < chosen.since:
                    return await self._read(picked, None)
                last, looked_at = entry.turn_id, looked_at + 1
                if _fits(entry, chosen):
                    picked.append(entry.turn_id)
                if len(picked) == size:
                    return await self._read(picked, last)
            if len(entries) < _BATCH:
                return await self._read(picked, None)
        return await self._read(picked, last)

    async def all(self, principal: Principal, chosen: RunFilter) -> AsyncGenerator[Sequence[Run], None]:
        """Yield all runs in pages, newest first."""
        before: TurnId | None = None
        while True:
            page = await self.page(principal, chosen, before, _BATCH)
            if page.runs:
                yield page.runs
            if page.next is None:
                return
            before = page.next

    async def _read(self, picked: Sequence[TurnId], following: TurnId | None) -> RunPage:
        runs: list[Run] = []
        held = 0
        for turn_id in picked:
            if held > HELD_BYTES:
                return RunPage(tuple(runs), runs[-1].turn_id)
            runs.append(await self._runs.run(turn_id))
            held += runs[-1].size
        return RunPage(tuple(runs), following)


def _fits(entry: RunEntry, chosen: RunFilter) -> bool:
    return (
        (chosen.state is None or entry.state is chosen.state)
        and (chosen.since is None or entry.created_at >= chosen.since)
        and (chosen.until is None or entry.created_at < chosen.until)
    )
