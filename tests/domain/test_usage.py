"""What a turn used: the sums hold what the models told, and say when that is not all."""

from dataclasses import replace

import pytest

from tests.domain.samples import proposed, turn
from tyrum_gateway.domain.policy import Decision
from tyrum_gateway.domain.states import TurnState
from tyrum_gateway.domain.turn import Turn, TurnLimits
from tyrum_gateway.domain.turn_events import (
    AttemptLost,
    CancelRequested,
    StepFailed,
    StepGenerated,
    TurnEvent,
)
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


def test_a_turn_that_has_used_its_tokens_asks_no_model() -> None:
    """Neither for the next step nor for another attempt; an answer that is there already is the turn's."""
    limits = TurnLimits(steps=4, attempts=3, tokens=10)
    present = replace(turn(), state=TurnState.RUNNING, step=1, attempt=1)
    going_on = StepGenerated(1, 1, "", (proposed(Decision.DENY),), Usage(5, 4))
    assert advance(present, going_on, limits).turn.state is TurnState.RUNNING
    for event in (
        replace(going_on, usage=Usage(5, 5)),
        StepFailed(1, 1, "", "busy", retryable=True, usage=Usage(11, None)),
    ):
        spent = advance(present, event, limits).turn
        assert spent.state is TurnState.FAILED
        assert "10 (`limits.tokens_per_turn`)" in spent.reason
    answered = StepGenerated(1, 1, "done", (), Usage(50, 50))
    assert advance(present, answered, limits).turn.state is TurnState.COMPLETED


def test_a_turn_knows_once_which_models_answered_it() -> None:
    """In the order in which each first did; a model without a name adds none."""
    present = replace(turn(), state=TurnState.RUNNING, step=1, attempt=1)
    for step, model in enumerate(("main", "spare", "", "main"), 1):
        text, calls = ("", (proposed(Decision.DENY),)) if step < 4 else ("done", ())
        generated = StepGenerated(step, 1, text, calls, model=model)
        present = advance(present, generated, LIMITS).turn
    assert present.answered_by == ("main", "spare")


def test_a_sum_with_something_untold_is_a_lower_bound() -> None:
    """Sums keep what was told, whatever else was not."""
    assert Usage(1, 2) + Usage(3, 4) == Usage(4, 6)
    assert Usage(1, 2) + UNKNOWN == UNKNOWN + Usage(1, 2) == Usage(1, 2, lower_bound=True)
    assert NOTHING.complete
    assert not (Usage(1, 2) + UNKNOWN + NOTHING).complete


@pytest.mark.parametrize(
    "event",
    [
        StepGenerated(1, 1, "done", ()),
        StepGenerated(1, 1, "done", (), Usage(7, None)),
        StepFailed(1, 1, "", "cut off", retryable=True),
        AttemptLost("the gateway was restarted"),
        CancelRequested("enough"),
    ],
)
def test_what_was_not_told_makes_the_sums_lower_bounds(event: TurnEvent) -> None:
    """Unknown usage counts as nothing and is remembered as unknown, also after a step that is known."""
    incoming, outgoing, complete = used(event)
    assert (incoming, outgoing, complete) in {(0, 0, False), (7, 0, False)}
    assert not UNKNOWN.complete
