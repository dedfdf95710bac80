"""How long a turn was worked on follows from its row, across outages, crash loops and clocks that jump."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tests.domain.samples import ALICE, NOW, proposed, turn
from tyrum_gateway.domain.approval import answer
from tyrum_gateway.domain.errors import KernelBug
from tyrum_gateway.domain.policy import Decision
from tyrum_gateway.domain.turn import Turn, TurnLimits, worked
from tyrum_gateway.domain.turn_events import (
    ApprovalAnswered,
    AttemptLost,
    Claimed,
    StepGenerated,
    TakenUp,
    TurnEvent,
)
from tyrum_gateway.domain.turn_machine import advance

LIMITS = TurnLimits(steps=4, attempts=3)
SECOND = timedelta(seconds=1)
UNSEEN = 60 * SECOND


def at(seconds: float) -> datetime:
    """A moment after the claim."""
    return NOW + seconds * SECOND


def committed(before: Turn, moment: datetime, *events: TurnEvent) -> Turn:
    """Apply events as the store does: with the time of the commit."""
    for event in events:
        before = advance(before, event, LIMITS).turn
    return replace(before, changed_at=moment)


def claimed() -> Turn:
    """A turn that is worked on from now on."""
    return committed(turn(), NOW, Claimed(NOW))


def test_work_counts_from_the_claim_and_anew_from_an_answer() -> None:
    """Neither the queue before the claim nor the wait for an answer is work."""
    assert worked(turn()) == timedelta()
    call = proposed(Decision.REQUIRE_APPROVAL)
    asking = committed(claimed(), at(5), StepGenerated(1, 1, "", (call,)))
    assert worked(asking) == 5 * SECOND
    assert call.approval is not None
    yes = answer(
        call.approval,
        approve=True,
        digest=call.approval.subject.digest,
        reason="",
        principal=ALICE,
        now=at(900),
    )
    assert worked(committed(asking, at(900), ApprovalAnswered(yes))) == timedelta()


def test_of_an_outage_no_more_counts_than_what_may_have_been_work() -> None:
    """An hour without a gateway costs a turn a minute at most, and stays left out of later commits."""
    lost = AttemptLost("restarted")
    short = committed(claimed(), at(30), TakenUp(at(30), UNSEEN), lost)
    assert worked(short) == 30 * SECOND
    outage = committed(claimed(), at(3600), TakenUp(at(3600), UNSEEN), lost)
    assert worked(outage) == UNSEEN
    assert worked(replace(outage, changed_at=at(3610))) == UNSEEN + 10 * SECOND


def test_a_crash_loop_uses_the_time_up() -> None:
    """Each time a turn is taken up the time since the last counts, though no other commit is made of it."""
    looping = claimed()
    for number in range(1, 101):
        looping = committed(looping, at(7 * number), TakenUp(at(7 * number), UNSEEN))
    assert worked(looping) == 700 * SECOND


def test_a_clock_that_jumps_between_two_gateways_is_no_work() -> None:
    """Backwards costs nothing and gives nothing back; forwards costs what an outage does."""
    begun = replace(claimed(), changed_at=at(20))
    back = committed(begun, at(-86_400), TakenUp(at(-86_400), UNSEEN))
    assert worked(back) == 20 * SECOND
    forth = committed(back, at(86_400), TakenUp(at(86_400), UNSEEN))
    assert worked(forth) == 20 * SECOND + UNSEEN


def test_only_a_turn_in_work_is_taken_up() -> None:
    """What is queued or waits was not interrupted."""
    with pytest.raises(KernelBug):
        advance(turn(), TakenUp(NOW, UNSEEN), LIMITS)
