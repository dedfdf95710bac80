"""The projection `chat.ui-message.stream`: every text once, a notice for everything a call goes through."""

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tyrum.chat.v1.chat_pb2 import Delta, Gap, PartialText, StreamItem
from tyrum.chat.v1.event_pb2 import (
    APPROVAL_OUTCOME_APPROVED,
    APPROVAL_OUTCOME_DENIED,
    APPROVAL_OUTCOME_EXPIRED,
    APPROVAL_OUTCOME_SUPERSEDED,
    CALL_STATE_DENIED,
    CALL_STATE_OUTCOME_UNKNOWN,
    CALL_STATE_SUCCEEDED,
    DECISION_ALLOW,
    DECISION_DENY,
    DECISION_REQUIRE_APPROVAL,
    TURN_STATE_COMPLETED,
    TURN_STATE_FAILED,
    ApprovalRequested,
    ApprovalResolved,
    AssistantMessage,
    AttemptAbandoned,
    Event,
    ProcessOutcome,
    ToolCallDecided,
    ToolCallFinished,
    ToolCallProposed,
    ToolCallStarted,
    TurnFinished,
    UserMessage,
)
from tyrum_gateway.cli.projection import Answered, Asked, Notice, Text, TurnView

TURN = "turn_1"


def event(sequence: int, turn_id: str = TURN, **payload: Any) -> StreamItem:
    """Build a stream item that carries a durable event."""
    return StreamItem(event=Event(sequence=sequence, turn_id=turn_id, **payload))


def delta(offset: int, text: str, attempt: int = 1, step: int = 1) -> StreamItem:
    """Build a stream item that carries new text."""
    return StreamItem(delta=Delta(turn_id=TURN, step=step, attempt=attempt, offset=offset, text=text))


def message(sequence: int, text: str, attempt: int = 1, *, incomplete: bool = False) -> StreamItem:
    """Build the durable text of an attempt."""
    durable = AssistantMessage(step=1, attempt=attempt, text=text, incomplete=incomplete)
    return event(sequence, assistant_message=durable)


def text_of(view: TurnView, items: list[StreamItem]) -> str:
    """Feed items and join the text that would be shown."""
    return "".join(piece.text for item in items for piece in view.feed(item) if isinstance(piece, Text))


def notices(view: TurnView, *items: StreamItem) -> list[str]:
    """Feed items and list the notices."""
    return [piece.text for item in items for piece in view.feed(item) if isinstance(piece, Notice)]


def test_deltas_are_shown_at_once_and_not_again_with_the_message() -> None:
    """The durable message adds only what the deltas have not shown."""
    view = TurnView(TURN)
    assert text_of(view, [delta(0, "Hello"), delta(5, ", wor")]) == "Hello, wor"
    assert text_of(view, [message(2, "Hello, world")]) == "ld"


@settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.text(max_size=60), st.randoms(use_true_random=False))
def test_text_is_shown_exactly_once_whatever_the_stream_lost(text: str, chance: random.Random) -> None:
    """Deltas dropped, repeated or cut at any byte border between characters never change the shown text."""
    items = []
    for start in range(0, len(text), 3):
        piece = delta(len(text[:start].encode()), text[start : start + 3])
        items += [piece] * chance.choice([0, 1, 1, 2])
    if chance.random() < 0.5:
        cut = chance.randint(0, len(text))
        partial = PartialText(turn_id=TURN, step=1, attempt=1, text=text[:cut])
        items.insert(chance.randint(0, len(items)), StreamItem(partial=partial))
    assert text_of(TurnView(TURN), [*items, message(2, text), message(2, text)]) == text


def test_text_after_a_gap_waits_for_the_message() -> None:
    """Text that does not continue what is shown is held back, then completed by the durable message."""
    view = TurnView(TURN)
    gap = StreamItem(gap=Gap(dropped_bytes=4))
    assert text_of(view, [delta(0, "one "), gap, delta(8, "three")]) == "one "
    assert text_of(view, [message(2, "one two three")]) == "two three"


def test_a_new_attempt_begins_afresh_and_the_old_one_stays_silent() -> None:
    """After an abandoned attempt the whole text of the next is shown, and late deltas of the old are not."""
    view = TurnView(TURN)
    assert text_of(view, [delta(0, "half")]) == "half"
    abandoned = AttemptAbandoned(step=1, attempt=1, reason="gateway restarted")
    assert notices(view, event(2, attempt_abandoned=abandoned), delta(2, "XX")) == []
    assert view.feed(delta(0, "half and", attempt=2)) == [
        Notice("[starting over] gateway restarted"),
        Text("half and"),
    ]
    assert text_of(view, [delta(4, "XX"), message(3, "half and half", 2)]) == " half"


def test_only_an_attempt_that_begins_starts_over() -> None:
    """Each attempt after another says why it begins, with text or without; after the last nothing does."""
    lost = [
        event(
            number, attempt_abandoned=AttemptAbandoned(step=1, attempt=number, reason=f"broke off {number}")
        )
        for number in (1, 2, 3)
    ]
    failed = event(4, turn_finished=TurnFinished(state=TURN_STATE_FAILED, reason="broke off 3"))
    view = TurnView(TURN)
    assert notices(view, *lost, failed) == ["[starting over] broke off 1", "[starting over] broke off 2"]
    assert view.reason == "broke off 3"
    silent = event(2, tool_call_proposed=ToolCallProposed(call_id="call_1", tool="t", arguments_json="{}"))
    assert notices(TurnView(TURN), lost[0], silent) == ["[starting over] broke off 1", "[t proposed] {}"]


def test_an_incomplete_message_is_marked() -> None:
    """Text that was cut off says so."""
    assert notices(TurnView(TURN), message(2, "hal", incomplete=True)) == [
        "[incomplete] the model was cut off"
    ]


def test_a_permitted_call_is_seen_proposed_allowed_running_and_finished() -> None:
    """Every station of a call that a rule lets through has its notice, the end its exit code and sizes."""
    outcome = ProcessOutcome(cause="exited", exit_code=3)
    outcome.duration.FromMilliseconds(1250)
    outcome.stdout.total_bytes = 7
    assert notices(
        TurnView(TURN),
        event(1, user_message=UserMessage(text="/run printf hi")),
        event(
            2,
            tool_call_proposed=ToolCallProposed(
                call_id="call_1", tool="process.run", arguments_json='{"argv":["printf","\\u001b[2J"]}'
            ),
        ),
        event(3, tool_call_decided=ToolCallDecided(call_id="call_1", decision=DECISION_ALLOW, rule_id="r1")),
        event(4, tool_call_started=ToolCallStarted(call_id="call_1", process_id="proc_1")),
        event(
            5,
            tool_call_finished=ToolCallFinished(
                call_id="call_1", state=CALL_STATE_SUCCEEDED, process=outcome
            ),
        ),
    ) == [
        '[process.run proposed] {"argv": ["printf", "\\u001b[2J"]}',
        "[process.run allowed] by rule `r1`",
        "[process.run running] proc_1",
        "[process.run finished] succeeded: exit 3, 1.25 s, 7 B out, 0 B err",
    ]


@pytest.mark.parametrize(
    ("outcome", "refused", "shown"),
    [
        (APPROVAL_OUTCOME_APPROVED, False, "[tool approved] by ada (token): fine"),
        (APPROVAL_OUTCOME_SUPERSEDED, False, "[tool approval superseded] fine"),
        (APPROVAL_OUTCOME_DENIED, True, "[tool denied] by ada (token): fine"),
        (APPROVAL_OUTCOME_EXPIRED, True, "[tool denied] approval expired"),
    ],
)
def test_an_approval_is_asked_and_its_end_is_told(outcome: Any, refused: bool, shown: str) -> None:
    """A waiting call asks, its outcome ends the question, and only a refusal counts as one."""
    view = TurnView(TURN)
    asked = ApprovalRequested(call_id="call_1", approval_id="appr_1")
    decided = ToolCallDecided(call_id="call_1", decision=DECISION_REQUIRE_APPROVAL)
    pieces = [*view.feed(event(1, tool_call_decided=decided)), *view.feed(event(2, approval_requested=asked))]
    assert Asked("appr_1") in pieces

    resolved = ApprovalResolved(
        call_id="call_1",
        approval_id="appr_1",
        outcome=outcome,
        resolved_by="ada",
        method="token",
        reason="fine",
    )
    finished = ToolCallFinished(
        call_id="call_1", state=CALL_STATE_DENIED if refused else CALL_STATE_SUCCEEDED
    )
    pieces = [
        *view.feed(event(3, approval_resolved=resolved)),
        *view.feed(event(4, tool_call_finished=finished)),
    ]
    assert [piece.approval_id for piece in pieces if isinstance(piece, Answered)] == ["appr_1"]
    assert Notice(shown) in pieces
    assert view.refused is refused


def test_a_denial_by_rule_names_the_rule_and_is_no_refused_approval() -> None:
    """What policy forbids is told once, with rule and reason."""
    view = TurnView(TURN)
    denied = ToolCallDecided(call_id="call_1", decision=DECISION_DENY, rule_id="no-rm", reason="not here")
    assert notices(
        view,
        event(1, tool_call_decided=denied),
        event(2, tool_call_finished=ToolCallFinished(call_id="call_1", state=CALL_STATE_DENIED)),
    ) == ["[tool denied] by rule `no-rm`: not here"]
    assert not view.refused


def test_an_unknown_outcome_is_called_that() -> None:
    """Nobody is told that a call succeeded or failed when nobody can tell."""
    finished = ToolCallFinished(call_id="call_1", state=CALL_STATE_OUTCOME_UNKNOWN)
    assert notices(TurnView(TURN), event(1, tool_call_finished=finished)) == [
        "[tool finished] outcome unknown"
    ]


def test_other_turns_are_left_out_and_the_end_is_noted() -> None:
    """A view of one turn ignores its neighbours in the conversation, yet counts their sequence."""
    view = TurnView(TURN)
    assert view.feed(event(7, "turn_2", assistant_message=AssistantMessage(step=1, text="other"))) == []
    assert not view.finished
    view.feed(event(8, turn_finished=TurnFinished(state=TURN_STATE_COMPLETED)))
    assert view.finished
    assert view.sequence == 8


def test_a_view_of_all_turns_shows_each() -> None:
    """Steps of a later turn begin at 1 again and are shown all the same."""
    view = TurnView()
    later = AssistantMessage(step=1, attempt=1, text="second")
    assert text_of(view, [message(1, "first"), event(2, "turn_2", assistant_message=later)]) == "firstsecond"
