"""Which waiting turn is worked on next: the slots of the gateway, shared between principals.

Promises, whatever the order of events:
- A slot is given to the principals that wait for one in turn, and in the order of asking within a principal.
- While another principal waits that has less than half of the slots, one with half of them gets no more.
- One slot in eight is kept for principals that have none: a turn may hold its slot for as long as a command
  runs, and nothing takes it back. Of fewer than eight slots none is kept.
- Within that no slot stays free while a turn waits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NewType, TypeVar

from tyrum_gateway.domain.ids import PrincipalId

Ticket = NewType("Ticket", int)
"""One request for a slot; never used twice."""

KEPT_OF = 8
"""One slot of so many is kept for principals without one."""

_Value = TypeVar("_Value", int, tuple[Ticket, ...])


@dataclass(frozen=True, slots=True)
class TurnSlots:
    """The slots, who has how many, and who waits."""

    total: int
    """How many there are, >= 1."""
    held: Mapping[PrincipalId, int] = field(default_factory=dict)
    """Slots by principal; only those that have some."""
    waiting: Mapping[PrincipalId, tuple[Ticket, ...]] = field(default_factory=dict)
    """Requests by principal, the oldest first; the principal whose turn it is comes first."""

    @property
    def free(self) -> int:
        """Slots that no principal has."""
        return self.total - sum(self.held.values())

    @property
    def share(self) -> int:
        """Half of the slots, rounded up: what a principal may have while others wait."""
        return (self.total + 1) // 2

    @property
    def kept(self) -> int:
        """Slots for principals that have none."""
        return self.total // KEPT_OF

    def asked(self, principal_id: PrincipalId, ticket: Ticket) -> tuple["TurnSlots", tuple[Ticket, ...]]:
        """Add a request; return what is then, and the requests that have a slot from now on."""
        queue = (*self.waiting.get(principal_id, ()), ticket)
        return _granted(replace(self, waiting={**self.waiting, principal_id: queue}))

    def withdrawn(self, principal_id: PrincipalId, ticket: Ticket) -> tuple["TurnSlots", tuple[Ticket, ...]]:
        """Take a request back that waits; return what is then, and the requests that have a slot by that."""
        queue = tuple(one for one in self.waiting.get(principal_id, ()) if one != ticket)
        return _granted(replace(self, waiting=_with(self.waiting, principal_id, queue)))

    def released(self, principal_id: PrincipalId) -> tuple["TurnSlots", tuple[Ticket, ...]]:
        """Give one slot of a principal back; return what is then, and the requests that have one by that."""
        left = self.held[principal_id] - 1
        return _granted(replace(self, held=_with(self.held, principal_id, left)))


def _granted(slots: TurnSlots) -> tuple[TurnSlots, tuple[Ticket, ...]]:
    """Give what is free to those that wait."""
    granted = list[Ticket]()
    while (principal_id := _next(slots)) is not None:
        first, *others = slots.waiting[principal_id]
        granted.append(first)
        behind = {one: queue for one, queue in slots.waiting.items() if one != principal_id}
        slots = replace(
            slots,
            held={**slots.held, principal_id: slots.held.get(principal_id, 0) + 1},
            waiting={**behind, principal_id: tuple(others)} if others else behind,
        )
    return slots, tuple(granted)


def _next(slots: TurnSlots) -> PrincipalId | None:
    """Tell whose request gets a slot now."""
    free = slots.free
    if not slots.waiting or free <= 0:
        return None
    unreserved = free > slots.kept
    for principal_id in slots.waiting:
        held = slots.held.get(principal_id, 0)
        if held == 0 or (unreserved and held < slots.share):
            return principal_id
    return next(iter(slots.waiting)) if unreserved else None


def _with(
    mapping: Mapping[PrincipalId, _Value], principal_id: PrincipalId, value: _Value
) -> Mapping[PrincipalId, _Value]:
    if value:
        return {**mapping, principal_id: value}
    return {one: kept for one, kept in mapping.items() if one != principal_id}
