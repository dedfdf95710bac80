"""The turn machine under random sequences of events: its invariants hold in whatever order they come."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from tests.domain.samples import ALICE, NOW, SLOW, approval, begun, fresh, proposed, turn
from tyrum_gateway.domain import transcript
from tyrum_gateway.domain.approval import Approval, Outcome, answer, close
from tyrum_gateway.domain.errors import KernelBug
from tyrum_gateway.domain.ids import ApprovalId, CallId
from tyrum_gateway.domain.policy import Decision
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.turn import (
    BeginCall,
    Call,
    Claim,
    Generate,
    Rest,
    SettleCall,
    Turn,
    TurnLimits,
    current_call,
    work,
)
from tyrum_gateway.domain.turn_events import (
    ApprovalAnswered,
    AttemptLost,
    Broken,
    CallBegun,
    CallEnded,
    CancelRequested,
    Claimed,
    CloseApproval,
    Effect,
    OpenApproval,
    Record,
    SaveCall,
    SaveCheckpoint,
    StepFailed,
    StepGenerated,
    StopProcess,
    SubjectChanged,
    TurnEvent,
)
from tyrum_gateway.domain.turn_machine import advance

LIMITS = TurnLimits(steps=4, attempts=3)
ENDS = (CallState.SUCCEEDED, CallState.FAILED, CallState.OUTCOME_UNKNOWN)


class Journal:
    """Everything that a sequence of transitions said, checked as it grows."""

    def __init__(self) -> None:
        self.turn = turn()
        self.finished = Counter[CallId]()
        self.proposed: list[CallId] = []
        self.started: list[CallId] = []
        self.running: CallId | None = None
        self.open: dict[ApprovalId, Approval] = {}
        self.asked: dict[ApprovalId, Approval] = {}
        self.resolved = Counter[ApprovalId]()
        self.ends = 0
        self.checkpoints = 0

    def apply(self, event: TurnEvent) -> None:
        """Advance and check what the transition says."""
        before = self.turn
        transition = advance(before, event, LIMITS)
        assert advance(before, event, LIMITS) == transition, "the machine is a function"
        for effect in transition.effects:
            self._see(effect)
        self.turn = transition.turn
        self._check()

    def _see(self, effect: Effect) -> None:
        match effect:
            case Record(payload):
                self._read(payload)
            case SaveCall(call):
                assert call.turn_id == self.turn.turn_id
                if call.state is CallState.EXECUTING:
                    assert call.operation_id
                if call.state in {CallState.PERMITTED, CallState.AWAITING_APPROVAL}:
                    assert call.operation_id is None
                    if call.call_id == self.running:
                        self.running = None  # it changed and did not run: it is asked again
            case OpenApproval(question):
                assert question.approval_id not in self.open
                self.open[question.approval_id] = self.asked[question.approval_id] = question
            case CloseApproval(approval_id):
                assert approval_id in self.open
            case StopProcess(call):
                assert call.call_id == self.running
            case SaveCheckpoint():
                self.checkpoints += 1

    def _read(self, payload: transcript.Payload) -> None:
        match payload:
            case transcript.ToolCallProposed(call_id=call_id):
                self.proposed.append(call_id)
            case transcript.ToolCallStarted(call_id=call_id):
                assert self.running is None, "one at a time"
                self.running = call_id
                self.started.append(call_id)
            case transcript.ToolCallFinished(call_id=call_id, state=state):
                assert state.final
                self.finished[call_id] += 1
                if call_id == self.running:
                    self.running = None
            case transcript.ApprovalResolved(approval_id=approval_id, outcome=Outcome.SUPERSEDED):
                assert self.resolved[approval_id] == 1, "only an approval that was given is superseded"
            case transcript.ApprovalResolved(approval_id=approval_id):
                self.resolved[approval_id] += 1
                del self.open[approval_id]
            case transcript.TurnFinished(state=state):
                assert state.final
                self.ends += 1
            case _:
                pass

    def _check(self) -> None:
        assert all(times == 1 for times in self.finished.values()), "one final state per call"
        assert all(times == 1 for times in self.resolved.values()), "one outcome per approval"
        order = [self.proposed.index(call_id) for call_id in dict.fromkeys(self.started)]
        assert order == sorted(order), "calls run in the order they were proposed"
        awaiting = {call.approval_id for call in self.turn.calls if call.state is CallState.AWAITING_APPROVAL}
        assert awaiting == set(self.open)
        assert self.ends == self.checkpoints == int(self.turn.state.final)
        assert self.turn.step <= LIMITS.steps
        assert self.turn.attempt - self.turn.lost <= LIMITS.attempts >= self.turn.lost - 1
        self._check_work()

    def _check_work(self) -> None:
        now = work(self.turn)
        match self.turn.state:
            case TurnState.QUEUED:
                assert now == Claim()
            case TurnState.RUNNING:
                assert isinstance(now, Generate | BeginCall | SettleCall)
                call = current_call(self.turn)
                assert call is None or call.state in {CallState.PERMITTED, CallState.EXECUTING}
            case TurnState.WAITING_APPROVAL:
                assert now == Rest()
                waiting = current_call(self.turn)
                assert waiting is not None
                assert waiting.state is CallState.AWAITING_APPROVAL
            case _:
                assert now == Rest()
                assert self.turn.calls == ()
                assert not self.open
                assert self.running is None
                assert set(self.finished) == set(self.proposed)


def possible(journal: Journal, data: DataObject) -> TurnEvent:
    """Draw an event that can happen now."""
    now = journal.turn
    anytime: list[Callable[[], TurnEvent]] = []
    if data.draw(st.integers(0, 24)) == 0:
        anytime = [lambda: CancelRequested("enough"), lambda: Broken("incident")]
    if journal.open:
        anytime.append(lambda: _answered(journal, data))
    due = work(now)
    match due:
        case Claim():
            anytime.append(lambda: Claimed(NOW))
        case Generate(step, attempt):
            anytime += [
                lambda: AttemptLost("restarted"),
                lambda: StepFailed(
                    step, attempt, data.draw(st.sampled_from(["", "text"])), "why", data.draw(st.booleans())
                ),
                *[lambda: _generated(step, attempt, data)] * 5,
            ]
        case BeginCall(call):
            anytime += [
                lambda: begun(call.call_id),
                lambda: begun(call.call_id),
                lambda: CallEnded(
                    call.call_id, data.draw(st.sampled_from([CallState.DENIED, CallState.FAILED])), "no"
                ),
                lambda: _changed(journal, call),
            ]
        case SettleCall(call):
            anytime += [
                lambda: CallEnded(call.call_id, data.draw(st.sampled_from(ENDS)), "done"),
                lambda: CallEnded(call.call_id, data.draw(st.sampled_from(ENDS)), "done"),
                lambda: _changed(journal, call),
            ]
        case Rest():
            pass
    return data.draw(st.sampled_from(anytime))() if anytime else CancelRequested("nobody answers")


def _changed(journal: Journal, call: Call) -> TurnEvent:
    superseded = journal.asked.get(call.approval_id) if call.approval_id else None
    return SubjectChanged(call.call_id, superseded, approval(call.call_id))


def _generated(step: int, attempt: int, data: DataObject) -> TurnEvent:
    decisions = data.draw(st.lists(st.sampled_from([*Decision, None]), max_size=4))
    text = data.draw(st.sampled_from(["", "text"]))
    return StepGenerated(step, attempt, text, tuple(map(proposed, decisions)))


def _answered(journal: Journal, data: DataObject) -> TurnEvent:
    question = data.draw(st.sampled_from(sorted(journal.open.values(), key=lambda item: item.approval_id)))
    if data.draw(st.integers(0, 5)) == 0:
        return ApprovalAnswered(close(question, Outcome.EXPIRED, NOW, "late"))
    approve = data.draw(st.booleans())
    digest = question.subject.digest
    return ApprovalAnswered(
        answer(question, approve=approve, digest=digest, reason="", principal=ALICE, now=NOW)
    )


def impossible(journal: Journal) -> list[TurnEvent]:
    """List events that cannot happen in the present state."""
    stranger = fresh(CallId)
    now = journal.turn
    events: list[TurnEvent] = [
        begun(stranger),
        CallEnded(stranger, CallState.SUCCEEDED, ""),
        SubjectChanged(stranger, None, approval(stranger)),
        ApprovalAnswered(close(approval(stranger), Outcome.EXPIRED, NOW, "")),
        StepGenerated(now.step, now.attempt + 1, "", ()),
        StepFailed(now.step + 1, now.attempt, "", "", retryable=True),
    ]
    if now.state is not TurnState.QUEUED:
        events.append(Claimed(NOW))
    call = current_call(now)
    if call is not None:
        events += [AttemptLost("x"), StepGenerated(now.step, now.attempt, "", ())]
        events.append(CallEnded(call.call_id, CallState.EXECUTING, ""))
    if call is not None and call.state is not CallState.PERMITTED:
        events.append(begun(call.call_id))
    if call is not None and call.state is CallState.AWAITING_APPROVAL:
        events.append(CallEnded(call.call_id, CallState.SUCCEEDED, ""))
    events += [begun(later.call_id) for later in now.calls if not later.state.final and later != call]
    if now.state.final:
        events += [CancelRequested("again"), Broken("again")]
    return events


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(st.data())
def test_any_sequence_keeps_the_invariants(data: DataObject) -> None:
    """However events follow, each call and approval ends once, in order, and an ended turn owes nothing."""
    journal = Journal()
    for _ in range(60):
        if journal.turn.state.final:
            break
        journal.apply(possible(journal, data))
    if not journal.turn.state.final:
        journal.apply(CancelRequested("the end"))
    assert journal.turn.state.final


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(st.data())
def test_what_cannot_happen_is_a_bug(data: DataObject) -> None:
    """An event that does not fit the state is refused at every point of every sequence."""
    journal = Journal()
    for _ in range(25):
        for event in impossible(journal):
            with pytest.raises(KernelBug):
                advance(journal.turn, event, LIMITS)
        if journal.turn.state.final:
            return
        journal.apply(possible(journal, data))


def after(*events: TurnEvent) -> Journal:
    """Play events from the beginning."""
    journal = Journal()
    for event in events:
        journal.apply(event)
    return journal


def states(journal: Journal) -> list[CallState]:
    """Return the states of the present step's calls."""
    return [call.state for call in journal.turn.calls]


def test_denial_ends_its_own_call_only() -> None:
    """Of two calls one is denied; the other runs, and the model is asked again when both are final."""
    denied, allowed = proposed(Decision.DENY), proposed(Decision.ALLOW)
    journal = after(Claimed(NOW), StepGenerated(1, 1, "", (denied, allowed)))
    assert states(journal) == [CallState.DENIED, CallState.PERMITTED]
    assert work(journal.turn) == BeginCall(journal.turn.calls[1])
    journal.apply(begun(allowed.call_id))
    journal.apply(CallEnded(allowed.call_id, CallState.SUCCEEDED, "ok"))
    assert work(journal.turn) == Generate(2, 1)


def test_a_later_call_is_answered_before_its_turn() -> None:
    """An approval that comes while an earlier call runs is kept until the call's turn comes."""
    first, second = proposed(Decision.ALLOW), proposed(Decision.REQUIRE_APPROVAL)
    journal = after(Claimed(NOW), StepGenerated(1, 1, "", (first, second)), begun(first.call_id))
    assert second.approval is not None
    yes = answer(
        second.approval,
        approve=True,
        digest=second.approval.subject.digest,
        reason="",
        principal=ALICE,
        now=NOW,
    )
    journal.apply(ApprovalAnswered(yes))
    assert states(journal) == [CallState.EXECUTING, CallState.PERMITTED]
    journal.apply(CallEnded(first.call_id, CallState.FAILED, "no"))
    assert work(journal.turn) == BeginCall(journal.turn.calls[1])


def test_a_turn_waits_only_for_the_call_that_is_due() -> None:
    """The turn rests exactly while the first open call awaits its answer."""
    asked, allowed = proposed(Decision.REQUIRE_APPROVAL), proposed(Decision.ALLOW)
    journal = after(Claimed(NOW), StepGenerated(1, 1, "", (asked, allowed)))
    assert journal.turn.state is TurnState.WAITING_APPROVAL
    assert asked.approval is not None
    journal.apply(ApprovalAnswered(close(asked.approval, Outcome.EXPIRED, NOW, "late")))
    assert states(journal) == [CallState.DENIED, CallState.PERMITTED]
    assert work(journal.turn) == BeginCall(journal.turn.calls[1])


def test_cancel_settles_everything_and_stops_what_runs() -> None:
    """One transition ends the turn, its calls and its approvals, and names the process to stop."""
    runs, asked, later = (
        proposed(Decision.ALLOW),
        proposed(Decision.REQUIRE_APPROVAL),
        proposed(Decision.ALLOW),
    )
    journal = after(Claimed(NOW), StepGenerated(1, 1, "", (runs, asked, later)), begun(runs.call_id))
    transition = advance(journal.turn, CancelRequested("enough"), LIMITS)
    stopped = [effect.call.call_id for effect in transition.effects if isinstance(effect, StopProcess)]
    closed = [effect.approval_id for effect in transition.effects if isinstance(effect, CloseApproval)]
    assert asked.approval is not None
    assert (stopped, closed) == ([runs.call_id], [asked.approval.approval_id])
    ended = [
        effect.payload.state
        for effect in transition.effects
        if isinstance(effect, Record) and isinstance(effect.payload, transcript.ToolCallFinished)
    ]
    assert ended == [CallState.CANCELLED] * 3
    assert transition.turn.state is TurnState.CANCELLED


def test_broken_turn_claims_no_more_than_is_known() -> None:
    """When the kernel itself fails, a call that was executing is unknown, and one that was not has failed."""
    runs, later = proposed(Decision.ALLOW), proposed(Decision.ALLOW)
    journal = after(Claimed(NOW), StepGenerated(1, 1, "", (runs, later)), begun(runs.call_id))
    transition = advance(journal.turn, Broken("incident"), LIMITS)
    ended = [
        effect.payload.state
        for effect in transition.effects
        if isinstance(effect, Record) and isinstance(effect.payload, transcript.ToolCallFinished)
    ]
    assert ended == [CallState.OUTCOME_UNKNOWN, CallState.FAILED]


def test_text_that_was_seen_is_never_repeated() -> None:
    """A step that breaks off after text fails the turn with the text marked incomplete, retryable or not."""
    journal = after(Claimed(NOW))
    transition = advance(journal.turn, StepFailed(1, 1, "half a", "cut off", retryable=True), LIMITS)
    assert transition.turn.state is TurnState.FAILED
    assert Record(transcript.AssistantMessage(1, 1, "half a", incomplete=True)) in transition.effects


def test_attempts_and_steps_are_bounded() -> None:
    """A step ends after its attempts, or as many more that were lost to restarts; a turn after its steps."""
    fails = [StepFailed(1, number, "", f"busy {number}", retryable=True) for number in (3, 4, 5)]
    journal = after(Claimed(NOW), AttemptLost("a"), AttemptLost("b"), *fails)
    assert (journal.turn.state, journal.turn.reason) == (TurnState.FAILED, "busy 5")
    journal = after(Claimed(NOW), *(AttemptLost(f"crash {number}") for number in range(4)))
    assert (journal.turn.state, journal.turn.reason) == (TurnState.FAILED, "crash 3")
    journal = after(Claimed(NOW))
    for step in range(1, LIMITS.steps + 1):
        journal.apply(StepGenerated(step, 1, "", (proposed(Decision.DENY),)))
    assert journal.turn.state is TurnState.FAILED
    assert "4 steps" in journal.turn.reason


def test_work_after_a_restart_is_that_of_the_row() -> None:
    """What a turn needs follows from its row alone: an executing call is settled, never begun again."""
    call = proposed(Decision.ALLOW)
    journal = after(Claimed(NOW), StepGenerated(1, 1, "", (call,)), begun(call.call_id))
    stored: Turn = replace(journal.turn)
    assert work(stored) == SettleCall(stored.calls[0])
    with pytest.raises(KernelBug):
        advance(stored, CallBegun(call.call_id, begun(call.call_id).operation_id, None, None), LIMITS)


def test_changed_subject_takes_back_the_operation() -> None:
    """A call that is asked again has no operation, and the old approval counts no longer."""
    call = proposed(Decision.REQUIRE_APPROVAL)
    assert call.approval is not None
    yes = answer(
        call.approval, approve=True, digest=call.approval.subject.digest, reason="", principal=ALICE, now=NOW
    )
    asked = StepGenerated(1, 1, "", (call,))
    journal = after(Claimed(NOW), asked, ApprovalAnswered(yes), begun(call.call_id))
    again = approval(call.call_id)
    transition = advance(journal.turn, SubjectChanged(call.call_id, None, again), LIMITS)
    changed = transition.turn.calls[0]
    assert (changed.state, changed.approval_id) == (CallState.AWAITING_APPROVAL, again.approval_id)
    assert (changed.operation_id, changed.process_id, changed.binding_id) == (None, None, None)
    assert transition.turn.state is TurnState.WAITING_APPROVAL
