"""The turn state machine: (turn, event) → (turn, effects), without I/O, clock or randomness.

    queued → running → (waiting_approval ⇄ running) → completed | failed | cancelled

Invariants: calls of a step run in order, one at a time; every call gets exactly one final state; a denial
ends its own call only; the model is asked again when all calls of a step are final; cancelling settles turn,
calls and open approvals in one transition.
"""

from dataclasses import replace
from datetime import timedelta
from typing import assert_never

from tyrum_gateway.domain import transcript
from tyrum_gateway.domain.approval import Approval, Outcome
from tyrum_gateway.domain.errors import KernelBug
from tyrum_gateway.domain.ids import CallId
from tyrum_gateway.domain.policy import Decision
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.turn import (
    Call,
    Claim,
    Generate,
    Turn,
    TurnLimits,
    Work,
    current_call,
    work,
    worked,
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
    ProposedCall,
    Record,
    SaveCall,
    SaveCheckpoint,
    StepFailed,
    StepGenerated,
    StopProcess,
    SubjectChanged,
    TakenUp,
    Transition,
    TurnEvent,
)
from tyrum_gateway.domain.usage import UNKNOWN, Usage


def advance(turn: Turn, event: TurnEvent, limits: TurnLimits) -> Transition:
    """Apply an event.

    Raises:
        KernelBug: The event cannot happen in this state.
    """
    if turn.state.final:
        raise KernelBug(f"turn is {turn.state} and cannot take {type(event).__name__}", turn=turn.turn_id)
    match event:
        case Claimed():
            _require(turn, Claim(), event)
            claimed = replace(turn, state=TurnState.RUNNING, step=1, attempt=1, working_since=event.at)
            return Transition(claimed, ())
        case TakenUp():
            return _taken_up(turn, event)
        case StepGenerated():
            _require(turn, Generate(event.step, event.attempt), event)
            answered = _with_answer(_with_usage(turn, event.usage), event.model)
            return _generated(answered, event, limits)
        case StepFailed():
            _require(turn, Generate(event.step, event.attempt), event)
            return _step_failed(_with_usage(turn, event.usage), event, limits)
        case AttemptLost():
            _require(turn, Generate(turn.step, turn.attempt), event)
            return _lost(_with_usage(turn, UNKNOWN), event, limits)
        case CallBegun():
            return _begun(turn, event)
        case CallEnded():
            return _ended(turn, event, limits)
        case ApprovalAnswered():
            return _answered(turn, event, limits)
        case SubjectChanged():
            return _superseded(turn, event)
        case CancelRequested():
            return _ended_by_force(turn, TurnState.CANCELLED, event.reason)
        case Broken():
            return _ended_by_force(turn, TurnState.FAILED, event.reason)
        case _:
            assert_never(event)


def _generated(turn: Turn, event: StepGenerated, limits: TurnLimits) -> Transition:
    effects: list[Effect] = []
    if event.text or not event.calls:
        effects.append(Record(transcript.AssistantMessage(event.step, event.attempt, event.text)))
    if not event.calls:
        return _finish(turn, TurnState.COMPLETED, "", effects)
    calls = []
    for index, proposed in enumerate(event.calls):
        call = Call(
            call_id=proposed.call_id,
            turn_id=turn.turn_id,
            step=event.step,
            index=index,
            tool=proposed.tool,
            arguments=proposed.arguments,
            state=CallState.PROPOSED,
        )
        effects.append(
            Record(transcript.ToolCallProposed(call.call_id, call.step, call.tool, call.arguments))
        )
        call, decided = _decided(call, proposed)
        effects += decided
        calls.append(call)
    return _settle_step(replace(turn, calls=tuple(calls)), effects, limits)


def _decided(call: Call, proposed: ProposedCall) -> tuple[Call, list[Effect]]:
    verdict = proposed.verdict
    if verdict is None:
        return _final(call, CallState.FAILED, f"not executed: {proposed.rejection}")
    effects: list[Effect] = [
        Record(
            transcript.ToolCallDecided(
                call.call_id,
                verdict.decision,
                verdict.rule_id,
                verdict.policy_digest,
                verdict.target,
                verdict.reason,
                verdict.author,
            )
        )
    ]
    call = replace(call, rule_id=verdict.rule_id)
    match verdict.decision:
        case Decision.DENY:
            call, final = _final(call, CallState.DENIED, f"denied by policy: {verdict.reason}")
            return call, effects + final
        case Decision.ALLOW:
            call = replace(call, state=CallState.PERMITTED)
            return call, [*effects, SaveCall(call)]
        case Decision.REQUIRE_APPROVAL:
            if proposed.approval is None:
                raise KernelBug("a call that requires approval has no question", call=call.call_id)
            call, asked = _ask(call, proposed.approval)
            return call, effects + asked
        case _:
            assert_never(verdict.decision)


def _step_failed(turn: Turn, event: StepFailed, limits: TurnLimits) -> Transition:
    if event.text:
        partial = transcript.AssistantMessage(event.step, event.attempt, event.text, incomplete=True)
        return _finish(turn, TurnState.FAILED, event.reason, [Record(partial)])
    if event.retryable:
        more = turn.attempt - turn.lost < limits.attempts
        return _next_attempt(turn, event.reason, limits, more=more)
    return _finish(turn, TurnState.FAILED, event.reason, [])


def _lost(turn: Turn, event: AttemptLost, limits: TurnLimits) -> Transition:
    """Begin the next attempt; what a restart ended is no failure of the model, and yet it is bounded."""
    more = turn.lost < limits.attempts
    return _next_attempt(replace(turn, lost=turn.lost + 1), event.reason, limits, more=more)


def _next_attempt(turn: Turn, reason: str, limits: TurnLimits, *, more: bool) -> Transition:
    abandoned = Record(transcript.AttemptAbandoned(turn.step, turn.attempt, reason))
    if (spent := _spent(turn, limits)) and more:
        return _finish(turn, TurnState.FAILED, spent, [abandoned])
    if not more:
        return _finish(turn, TurnState.FAILED, reason, [abandoned])
    return Transition(replace(turn, attempt=turn.attempt + 1), (abandoned,))


def _taken_up(turn: Turn, event: TakenUp) -> Transition:
    """Leave the outage out of the working time, all but what may have been work."""
    if turn.state is not TurnState.RUNNING:
        raise KernelBug(f"turn is {turn.state} and cannot be taken up", turn=turn.turn_id)
    silence = event.at - (turn.changed_at or event.at)
    spent = worked(turn) + min(max(silence, timedelta()), event.unseen)
    return Transition(replace(turn, working_since=event.at - spent), ())


def _begun(turn: Turn, event: CallBegun) -> Transition:
    call = _require_current(turn, event.call_id, CallState.PERMITTED, event)
    call = replace(
        call,
        state=CallState.EXECUTING,
        operation_id=event.operation_id,
        process_id=event.process_id,
        binding_id=event.binding_id,
    )
    started = transcript.ToolCallStarted(call.call_id, event.operation_id, event.binding_id, event.process_id)
    return Transition(_with_call(turn, call), (SaveCall(call), Record(started)))


def _ended(turn: Turn, event: CallEnded, limits: TurnLimits) -> Transition:
    call = current_call(turn)
    possible = call is not None and call.call_id == event.call_id and event.state.final
    if call is None or not possible or call.state not in {CallState.PERMITTED, CallState.EXECUTING}:
        raise KernelBug("a call ended that was not current", turn=turn.turn_id, call=event.call_id)
    call, effects = _final(call, event.state, event.content, event.process)
    return _settle_step(_with_call(turn, call), effects, limits)


def _answered(turn: Turn, event: ApprovalAnswered, limits: TurnLimits) -> Transition:
    approval, resolution = event.approval, event.approval.resolution
    call = next((call for call in turn.calls if call.approval_id == approval.approval_id), None)
    if call is None or call.state is not CallState.AWAITING_APPROVAL or resolution is None:
        raise KernelBug("an approval was answered that no call awaits", turn=turn.turn_id)
    effects: list[Effect] = [Record(_resolved(approval))]
    turn = replace(turn, working_since=resolution.resolved_at)
    match resolution.outcome:
        case Outcome.APPROVED:
            call = replace(call, state=CallState.PERMITTED)
            effects.append(SaveCall(call))
        case Outcome.DENIED:
            why = f": {resolution.reason}" if resolution.reason else ""
            call, final = _final(call, CallState.DENIED, f"denied by {resolution.resolved_by}{why}")
            effects += final
        case Outcome.EXPIRED:
            call, final = _final(call, CallState.DENIED, "denied: nobody approved the call in time")
            effects += final
        case Outcome.CANCELLED | Outcome.SUPERSEDED:
            raise KernelBug("this outcome is not an answer", approval=approval.approval_id)
        case _:
            assert_never(resolution.outcome)
    return _settle_step(_with_call(turn, call), effects, limits)


def _superseded(turn: Turn, event: SubjectChanged) -> Transition:
    call = current_call(turn)
    launching = {CallState.PERMITTED, CallState.EXECUTING}
    if call is None or call.call_id != event.call_id or call.state not in launching:
        raise KernelBug("SubjectChanged does not fit the current call", turn=turn.turn_id)
    effects: list[Effect] = []
    if event.superseded is not None:
        effects.append(
            Record(
                transcript.ApprovalResolved(
                    call.call_id, event.superseded.approval_id, Outcome.SUPERSEDED, "", "", event.reason
                )
            )
        )
    call = replace(call, operation_id=None, process_id=None, binding_id=None)
    call, asked = _ask(call, event.approval)
    waiting = replace(_with_call(turn, call), state=TurnState.WAITING_APPROVAL)
    return Transition(waiting, (*effects, *asked))


def _ended_by_force(turn: Turn, state: TurnState, reason: str) -> Transition:
    """Settle the turn, every open call and every open approval at once."""
    if isinstance(work(turn), Generate):
        turn = _with_usage(turn, UNKNOWN)  # of the attempt that this ends nothing will be told
    effects: list[Effect] = []
    for call in turn.calls:
        if call.state.final:
            continue
        if call.state is CallState.AWAITING_APPROVAL and call.approval_id is not None:
            effects.append(CloseApproval(call.approval_id, Outcome.CANCELLED, reason))
            closed = transcript.ApprovalResolved(
                call.call_id, call.approval_id, Outcome.CANCELLED, "", "", reason
            )
            effects.append(Record(closed))
        executing = call.state is CallState.EXECUTING
        if executing:
            effects.append(StopProcess(call))
        if state is TurnState.CANCELLED:
            effects += _final(call, CallState.CANCELLED, "cancelled before it ended")[1]
        elif executing:
            effects += _final(call, CallState.OUTCOME_UNKNOWN, "nobody can tell how far the call ran")[1]
        else:
            effects += _final(call, CallState.FAILED, "not executed: the turn failed before it began")[1]
    return _finish(turn, state, reason, effects)


def _settle_step(turn: Turn, effects: list[Effect], limits: TurnLimits) -> Transition:
    """Move on to the next call, to waiting, or to the next step when every call is final."""
    call = current_call(turn)
    if call is not None:
        waiting = call.state is CallState.AWAITING_APPROVAL
        state = TurnState.WAITING_APPROVAL if waiting else TurnState.RUNNING
        return Transition(replace(turn, state=state), tuple(effects))
    if turn.step >= limits.steps:
        return _finish(turn, TurnState.FAILED, f"the turn took its {limits.steps} steps", effects)
    if spent := _spent(turn, limits):
        return _finish(turn, TurnState.FAILED, spent, effects)
    following = replace(turn, state=TurnState.RUNNING, step=turn.step + 1, attempt=1, lost=0, calls=())
    return Transition(following, tuple(effects))


def _finish(turn: Turn, state: TurnState, reason: str, effects: list[Effect]) -> Transition:
    rested = replace(turn, state=state, reason=reason, calls=())
    return Transition(rested, (*effects, Record(transcript.TurnFinished(state, reason)), SaveCheckpoint()))


def _ask(call: Call, approval: Approval) -> tuple[Call, list[Effect]]:
    call = replace(call, state=CallState.AWAITING_APPROVAL, approval_id=approval.approval_id)
    requested = transcript.ApprovalRequested(call.call_id, approval.approval_id, approval.expires_at)
    return call, [SaveCall(call), OpenApproval(approval), Record(requested)]


def _final(
    call: Call, state: CallState, content: str, process: transcript.ProcessEnded | None = None
) -> tuple[Call, list[Effect]]:
    call = replace(call, state=state)
    finished = transcript.ToolCallFinished(call.call_id, state, content, process)
    return call, [SaveCall(call), Record(finished)]


def _resolved(approval: Approval) -> transcript.ApprovalResolved:
    resolution = approval.resolution
    if resolution is None:
        raise KernelBug("a pending approval has no outcome", approval=approval.approval_id)
    return transcript.ApprovalResolved(
        approval.call_id,
        approval.approval_id,
        resolution.outcome,
        resolution.resolved_by,
        resolution.method,
        resolution.reason,
        resolution.origin,
        resolution.override_id,
    )


def _with_usage(turn: Turn, usage: Usage) -> Turn:
    return replace(
        turn,
        input_tokens=turn.input_tokens + (usage.input_tokens or 0),
        output_tokens=turn.output_tokens + (usage.output_tokens or 0),
        usage_complete=turn.usage_complete and usage.complete,
    )


def _with_answer(turn: Turn, model: str) -> Turn:
    if not model or model in turn.answered_by:
        return turn
    return replace(turn, answered_by=(*turn.answered_by, model))


def _spent(turn: Turn, limits: TurnLimits) -> str:
    """Say that the model may not be asked again; empty while it may."""
    used = turn.input_tokens + turn.output_tokens
    if limits.tokens is None or used < limits.tokens:
        return ""
    return (
        f"the turn has used {used:,} tokens and may use {limits.tokens:,} (`limits.tokens_per_turn`): "
        "none are left for another step"
    )


def _with_call(turn: Turn, changed: Call) -> Turn:
    calls = (changed if call.call_id == changed.call_id else call for call in turn.calls)
    return replace(turn, calls=tuple(calls))


def _require_current(turn: Turn, call_id: CallId, state: CallState, event: TurnEvent) -> Call:
    call = current_call(turn)
    if call is None or call.call_id != call_id or call.state is not state:
        raise KernelBug(f"{type(event).__name__} does not fit the current call", turn=turn.turn_id)
    return call


def _require(turn: Turn, expected: Work, event: TurnEvent) -> None:
    if work(turn) != expected:
        raise KernelBug(f"turn is {turn.state} and cannot take {type(event).__name__}", turn=turn.turn_id)
