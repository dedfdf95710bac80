"""What a turn used: the sums hold what the models told, and say when that is not all."""

from dataclasses import replace

import pytest

from tests.domain.samples import proposed, turn
from tyrum_gateway.domain.policy import Decision
from tyrum_gateway.domain.states import TurnState
from tyrum_gateway.domain.turn import Turn, TurnLimits
from tyrum_gateway.domain.turn_events import AttemptLost, StepFailed, StepGenerated, TurnEvent
from tyrum_gateway.domain.turn_machine import advance
from tyrum_gateway.domain.usage import NOTHING, UNKNOWN, Usage

LIMITS = TurnLimits(steps=4, attempts=3)


def used(*events: TurnEvent) -> tuple[int, int, bool]:
    """Apply events to a turn at its first step; return its sums and whether they are complete."""
    present: Turn = replace(turn(), state=TurnState.RUNNING, step=1, attempt=1)
    for event in events:
        present = advance(present, event, LIMITS).turn
    return present.input_tokens, present.output_tokens, present.usage_complete


def test_usage_adds_up_over_steps_and_attempts() -> None:
    """A refused attempt used nothing; one that failed after it told its usage counts, as each step does."""
    denied = proposed(Decision.DENY)
    assert used(
        StepFailed(1, 1, "", "busy", retryable=True, usage=NOTHING),
        StepFailed(1, 2, "", "malformed", retryable=True, usage=Usage(5, 1)),
        StepGenerated(1, 3, "", (denied,), Usage(10, 3)),
        StepGenerated(2, 1, "done", (), Usage(20, 4)),
    ) == (35, 8, True)


@pytest.mark.parametrize(
    "event",
    [
        StepGenerated(1, 1, "done", ()),
        StepGenerated(1, 1, "done", (), Usage(7, None)),
        StepFailed(1, 1, "", "cut off", retryable=True),
        AttemptLost("the gateway was restarted"),
    ],
)
def test_what_was_not_told_makes_the_sums_lower_bounds(event: TurnEvent) -> None:
    """Unknown usage counts as nothing and is remembered as unknown, also after a step that is known."""
    incoming, outgoing, complete = used(event)
    assert (incoming, outgoing, complete) in {(0, 0, False), (7, 0, False)}
    assert not UNKNOWN.complete
