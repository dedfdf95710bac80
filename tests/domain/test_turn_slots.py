"""Slots are shared between principals: every promise of `turn_slots` after every order of events."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tyrum_gateway.domain.ids import PrincipalId
from tyrum_gateway.domain.turn_slots import KEPT_OF, Ticket, TurnSlots

PRINCIPALS = [PrincipalId.build(1, bytes([number]) * 10) for number in range(4)]
EVENTS = st.lists(st.tuples(st.sampled_from(["ask", "ask", "release", "withdraw"]), st.integers(0, 1000)))


@dataclass(slots=True)
class Ledger:
    """Plays events, and keeps what was asked and given in plain lists."""

    slots: TurnSlots
    given: list[tuple[PrincipalId, Ticket]] = field(default_factory=list)
    waiting: list[tuple[PrincipalId, Ticket]] = field(default_factory=list)
    tickets: int = 0

    def ask(self, principal_id: PrincipalId) -> list[PrincipalId]:
        """Ask for a slot; return who was given one by that."""
        ticket, self.tickets = Ticket(self.tickets), self.tickets + 1
        self.waiting.append((principal_id, ticket))
        self.slots, granted = self.slots.asked(principal_id, ticket)
        return self._given(granted)

    def release(self, index: int) -> list[PrincipalId]:
        """Give a slot back."""
        principal_id, _ = self.given.pop(index % len(self.given))
        self.slots, granted = self.slots.released(principal_id)
        return self._given(granted)

    def withdraw(self, index: int) -> list[PrincipalId]:
        """Wait no longer."""
        principal_id, ticket = self.waiting.pop(index % len(self.waiting))
        self.slots, granted = self.slots.withdrawn(principal_id, ticket)
        return self._given(granted)

    def play(self, event: str, index: int) -> list[PrincipalId]:
        """Let something happen, if it can."""
        if event == "ask":
            return self.ask(PRINCIPALS[index % len(PRINCIPALS)])
        if event == "release" and self.given:
            return self.release(index)
        if event == "withdraw" and self.waiting:
            return self.withdraw(index)
        return []

    def held(self, principal_id: PrincipalId) -> int:
        """How many slots a principal has."""
        return sum(one == principal_id for one, _ in self.given)

    def _given(self, granted: tuple[Ticket, ...]) -> list[PrincipalId]:
        named = {ticket: principal_id for principal_id, ticket in self.waiting}
        for ticket in granted:
            mine = [one for principal_id, one in self.waiting if principal_id == named[ticket]]
            assert ticket == mine[0], "in the order of asking"
            self.waiting.remove((named[ticket], ticket))
            self.given.append((named[ticket], ticket))
        return [named[ticket] for ticket in granted]


@settings(deadline=None, derandomize=True, database=None)
@given(st.integers(1, 20), EVENTS)
def test_no_order_of_events_breaks_a_promise(total: int, events: list[tuple[str, int]]) -> None:
    """Never more than there are, none idle that may be given, half while others wait, one in eight kept."""
    ledger = Ledger(TurnSlots(total))
    half, kept = (total + 1) // 2, total // KEPT_OF
    for event, index in events:
        granted = ledger.play(event, index)
        assert len(ledger.given) <= total
        assert ledger.slots.free == total - len(ledger.given)
        waiting = {principal_id for principal_id, _ in ledger.waiting}
        assert {(one, ticket) for one, queue in ledger.slots.waiting.items() for ticket in queue} == set(
            ledger.waiting
        )
        if ledger.slots.free > kept:
            assert not waiting, "a slot is free while a turn waits"
        if ledger.slots.free:
            assert all(ledger.held(one) for one in waiting), "one was kept, but not given to whom it is for"
        for principal_id in granted:
            if ledger.held(principal_id) > half:
                assert not [one for one in waiting - {principal_id} if ledger.held(one) < half]
            if ledger.held(principal_id) > 1:
                assert ledger.slots.free >= kept, "the last slots are for those without one"


@settings(deadline=None, derandomize=True, database=None)
@given(st.integers(2, 40), st.integers(2, 4), st.integers(0, 30))
def test_principals_that_wait_get_slots_in_turn(total: int, principals: int, ahead: int) -> None:
    """Whoever had all slots before: the first grants reach everybody, and then they go round."""
    ledger = Ledger(TurnSlots(total))
    flood, *others = PRINCIPALS[:principals]
    for _ in range(total + ahead):
        ledger.ask(flood)
    grants = [given for _ in range(total) for one in others for given in ledger.ask(one)]
    while ledger.waiting and len(grants) < 2 * principals:
        grants += ledger.release(0)
    assert set(others) <= set(grants[: len(others) + 1]), "whatever the flood has waiting"
    if ledger.waiting:
        counts = [grants.count(one) for one in others]
        assert max(counts) - min(counts) <= 1, "and nobody is passed over"
        assert ledger.held(flood) <= max(ledger.slots.share, total - len(grants))


def test_one_principal_alone_uses_all_but_what_is_kept() -> None:
    """Of 64 slots 56, of 7 all; a newcomer has one at once where one is kept, else the next that is free."""
    for total, alone in ((64, 56), (8, 7), (7, 7), (2, 2)):
        ledger = Ledger(TurnSlots(total))
        for _ in range(2 * total):
            ledger.ask(PRINCIPALS[0])
        assert ledger.held(PRINCIPALS[0]) == alone
        granted = ledger.ask(PRINCIPALS[1])
        assert (granted == [PRINCIPALS[1]]) is (alone < total)
        if not granted:
            assert ledger.release(0) == [PRINCIPALS[1]]
