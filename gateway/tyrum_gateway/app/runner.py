"""Running one turn: do what it needs next until it rests.

Invariants: operation and binding are committed before a tool executes; a call found executing after a restart
is asked about and never repeated; an attempt of the model found begun after a restart is given up; what was
worked on a turn before counts against its time.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, assert_never

import structlog

from tyrum_gateway.app.agent import Agent, EngineLimits
from tyrum_gateway.app.allowance import Allowance
from tyrum_gateway.app.backoff import pause_seconds
from tyrum_gateway.app.interrupt import Interrupted, Interrupts
from tyrum_gateway.app.observer import Observer, Unobserved
from tyrum_gateway.app.past import Pasts
from tyrum_gateway.app.proposals import AskAgain, Barred, Proposals, Ready
from tyrum_gateway.app.step_bounds import StepText, require_few
from tyrum_gateway.app.streams import Attempt, Streams
from tyrum_gateway.app.turns import Turns
from tyrum_gateway.app.withdrawn import Withdrawn
from tyrum_gateway.domain.approval import Approval
from tyrum_gateway.domain.binding import Binding
from tyrum_gateway.domain.errors import KernelBug, ModelUnavailable, PermissionEnded, TokensSpent, TyrumError
from tyrum_gateway.domain.ids import BindingId, CallId, OperationId, OverrideId, ProcessId
from tyrum_gateway.domain.model import CallRequest, StepEnd, TextDelta
from tyrum_gateway.domain.ports import Clock, Ids, Store
from tyrum_gateway.domain.process import ProcessResult
from tyrum_gateway.domain.prompt import assemble
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.tool import Execution, Tool, ToolResult
from tyrum_gateway.domain.transcript import OutputDigest, ProcessEnded
from tyrum_gateway.domain.turn import BeginCall, Call, Claim, Generate, Rest, SettleCall, Turn, work
from tyrum_gateway.domain.turn_events import (
    AttemptLost,
    CallBegun,
    CallEnded,
    Claimed,
    StepFailed,
    StepGenerated,
    SubjectChanged,
    TakenUp,
    Transition,
    TurnEvent,
)
from tyrum_gateway.domain.usage import Usage

log = structlog.get_logger(__name__)

_BROKE_OFF = "the model's answer broke off"

Background = Callable[[Coroutine[Any, Any, None]], object]
"""Runs what may follow a commit without being waited for, inside the engine's task group."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A call whose operation is committed and whose tool may now execute."""

    tool: Tool
    ready: Ready
    execution: Execution
    approved: Approval | None


class TurnRunner:
    """Drives turns of one agent."""

    def __init__(
        self,
        *,
        agent: Agent,
        store: Store,
        clock: Clock,
        ids: Ids,
        turns: Turns,
        pasts: Pasts,
        proposals: Proposals,
        streams: Streams,
        interrupts: Interrupts,
        limits: EngineLimits,
        allowance: Allowance,
        observer: Observer | None = None,
        background: Background,
    ) -> None:
        self._agent = agent
        self._store = store
        self._clock = clock
        self._ids = ids
        self._turns = turns
        self._pasts = pasts
        self._proposals = proposals
        self._streams = streams
        self._interrupts = interrupts
        self._limits = limits
        self._allowance = allowance
        self._observer = observer or Unobserved()
        self._untold: set[str] = set()
        self._background = background

    async def take_up(self, turn: Turn) -> Turn:
        """Make durable that a turn goes on which was in work when the gateway or its store ended.

        An attempt of its model is given up. The commit precedes the work, so that each interruption counts.
        """
        if turn.state is not TurnState.RUNNING:
            return turn
        # An attempt is over within its own time; a command runs on without the gateway. No outage may use up
        # a turn by itself, also where a step may take as long as a turn.
        unseen = min(self._limits.step_time, self._limits.turn_time / 2)
        taken_up = TakenUp(self._clock.now(), unseen)
        lost = [AttemptLost("the gateway was restarted")] if isinstance(work(turn), Generate) else []
        return (await self._turns.apply(turn, taken_up, *lost))[0]

    async def drive(self, turn: Turn) -> None:
        """Work on a turn until it rests."""
        launched: Launched | None = None
        while True:
            match work(turn):
                case Rest():
                    return
                case Claim():
                    turn, _ = await self._turns.apply(turn, Claimed(self._clock.now()))
                case Generate():
                    turn, launched = await self._generate(turn)
                case BeginCall():
                    turn, launched = await self._progress(turn)
                case SettleCall(call):
                    turn, launched = await self._settle(turn, call, launched)
                case _ as never:
                    assert_never(never)

    async def _generate(self, turn: Turn) -> tuple[Turn, Launched | None]:
        text = StepText()
        event: TurnEvent
        ready: Mapping[CallId, Ready] = {}
        seconds = self._limits.step_time.total_seconds()
        try:
            event, ready = await self._interrupts.run(
                turn.turn_id, self._attempt(turn, text), seconds=seconds
            )
        except Interrupted:
            newest = await self._reload(turn)
            if newest.state.final:
                return newest, None
            event = self._failed(turn, text, ModelUnavailable(_BROKE_OFF, retryable=True))
        except TimeoutError:
            late = ModelUnavailable(f"the model did not finish within {seconds:g} s", retryable=True)
            event = self._failed(turn, text, late)
        except ModelUnavailable as unavailable:
            event = self._failed(turn, text, unavailable)
        finally:
            text.close()
            self._streams.attempt_over(turn.conversation_id)
        turn, launched = await self._progress(turn, event, ready=ready)
        if isinstance(event, StepFailed) and isinstance(work(turn), Generate):
            pause = asyncio.sleep(pause_seconds(event.attempt, event.retry_after))
            try:
                await self._interrupts.run(turn.turn_id, pause)
            except Interrupted:
                return await self._reload(turn), None
        return turn, launched

    async def _attempt(self, turn: Turn, text: StepText) -> tuple[StepGenerated, Mapping[CallId, Ready]]:
        """Ask the model; what it emits is appended to `text` as it comes."""
        await self._allowance.require(turn.principal_id)
        window = await self._pasts.window(turn)
        prompt = assemble(
            operator_instructions=self._agent.instructions, window=window, tools=self._agent.exposed()
        )
        attempt = Attempt(turn.turn_id, turn.step, turn.attempt)
        async with aclosing(self._agent.model.generate(prompt)) as events:
            async for event in events:
                match event:
                    case TextDelta(""):
                        pass  # nothing to publish, and nothing that a bound in bytes would count
                    case TextDelta(emitted):
                        new = _well_formed(emitted)
                        text.add(new)
                        self._streams.delta(turn.conversation_id, attempt, new)
                    case StepEnd(requests, usage, model):
                        readable = [_readable(item) for item in requests]
                        require_few(readable)
                        decided = await self._proposals.decide(turn, readable)
                        model = model or self._agent.model_name
                        self._look_at(usage, model)
                        self._observer.step_answered(model)
                        generated = StepGenerated(
                            turn.step, turn.attempt, str(text), decided.calls, usage, model
                        )
                        return generated, decided.ready
        raise ModelUnavailable(_BROKE_OFF, retryable=True)

    def _look_at(self, usage: Usage, model: str) -> None:
        """Tell the operator once that a limit does not hold what a model does not report."""
        limited = self._limits.turn.tokens or self._limits.daily_tokens_per_principal
        if limited and not usage.complete and model not in self._untold:
            self._untold.add(model)
            log.warning(
                "usage_not_reported",
                model=model,
                reason="tokens of a step were not reported: limits do not count them",
            )

    def _failed(self, turn: Turn, text: StepText, why: ModelUnavailable) -> TurnEvent:
        if isinstance(why, TokensSpent):
            log.warning("tokens_spent", turn=turn.turn_id, principal=turn.principal_id, reason=why.public)
            self._observer.tokens_refused()
        else:
            log.warning("model_unavailable", turn=turn.turn_id, reason=why.public, **why.context)
        return StepFailed(
            turn.step,
            turn.attempt,
            str(text),
            why.public,
            retryable=why.retryable,
            retry_after=why.retry_after,
            usage=why.usage,
        )

    async def _progress(
        self,
        turn: Turn,
        *events: TurnEvent,
        results: dict[CallId, ProcessResult] | None = None,
        ready: Mapping[CallId, Ready] | None = None,
    ) -> tuple[Turn, Launched | None]:
        """Apply events, and begin the call that is due after them in the same commit.

        Args:
            turn: As stored.
            events: What happened to it.
            results: Process results of calls that end.
            ready: Calls that these very events permit: they are not resolved a second time.
        """
        collected, bindings, launched = list(events), list[Binding](), None
        relies_on: tuple[OverrideId, ...] = ()
        previewed = self._turns.preview(Transition(turn, ()), events)
        while isinstance(due := work(previewed.turn), BeginCall):
            event, launched = await self._launch(
                previewed.turn, due.call, (ready or {}).get(due.call.call_id)
            )
            if launched is not None:
                relies_on = launched.ready.relies_on
                if launched.execution.candidate is not None:
                    bindings.append(self._binding(launched.execution))
            collected.append(event)
            previewed = self._turns.preview(previewed, [event])
        try:
            stored, applied = await self._turns.apply(
                turn,
                *collected,
                previewed=previewed,
                bindings=tuple(bindings),
                results=results,
                relies_on=relies_on,
            )
        except PermissionEnded:
            # Revoked or over since the call was judged: judge it anew, without that permission.
            return await self._progress(turn, *events, results=results)
        return stored, launched if applied else None

    async def _launch(self, turn: Turn, call: Call, ready: Ready | None) -> tuple[TurnEvent, Launched | None]:
        approved = await self._store.approval(call.approval_id) if call.approval_id else None
        launch = ready or await self._proposals.launch(turn, call, approved)
        match launch:
            case Barred(denied, content):
                state = CallState.DENIED if denied else CallState.FAILED
                return CallEnded(call.call_id, state, content), None
            case AskAgain(superseded, approval, reason):
                return SubjectChanged(call.call_id, superseded, approval, reason), None
            case Ready(prepared):
                execution = Execution(
                    operation_id=self._ids.new(OperationId),
                    process_id=self._ids.new(ProcessId) if prepared.run else None,
                    binding_id=self._ids.new(BindingId) if prepared.candidate else None,
                    candidate=prepared.candidate,
                    principal_id=turn.principal_id,
                )
                begun = CallBegun(
                    call.call_id, execution.operation_id, execution.process_id, execution.binding_id
                )
                return begun, Launched(self._agent.tools[call.tool], launch, execution, approved)
            case _:
                assert_never(launch)

    def _binding(self, execution: Execution) -> Binding:
        if execution.binding_id is None or execution.candidate is None:
            raise KernelBug("an operation of a provider has no binding", operation=execution.operation_id)
        return Binding(execution.binding_id, execution.operation_id, execution.candidate)

    async def _settle(
        self, turn: Turn, call: Call, launched: Launched | None
    ) -> tuple[Turn, Launched | None]:
        """Execute a call that was just committed, or learn what became of one that was begun before."""
        if launched is not None and launched.execution.operation_id == call.operation_id:
            execution, tool = launched.execution, launched.tool
            effect = tool.execute(launched.ready.prepared, execution)
        else:
            execution, tool = await self.execution_of(turn, call), self._tool(call)
            effect = tool.settle(execution)
        try:
            result = await self._interrupts.run(turn.turn_id, effect)
        except Interrupted:
            return await self._reload(turn), None
        except TyrumError as error:
            ids = {"turn": turn.turn_id, "call": call.call_id, "operation": call.operation_id or ""}
            log.warning("tool_unavailable", reason=error.public, **(error.context | ids))
            result = ToolResult(CallState.OUTCOME_UNKNOWN, error.public)
        if result.subject_changed and launched is not None:
            return await self._progress(turn, await self._asked_again(turn, call, launched.approved))
        ended = CallEnded(call.call_id, result.state, result.content, _process_ended(result.process))
        results = {call.call_id: result.process} if result.process else None
        progressed = await self._progress(turn, ended, results=results)
        unknown = result.state is CallState.OUTCOME_UNKNOWN
        # What is settled without being known to have ended must not run on.
        self._background(_end(tool, execution) if unknown else tool.release(execution))
        return progressed

    async def _asked_again(self, turn: Turn, call: Call, approved: Approval | None) -> TurnEvent:
        """Ask about what would run now, after the provider refused what was launched: nothing has run."""
        launch = await self._proposals.launch(turn, call, approved)
        match launch:
            case Barred(denied, content):
                return CallEnded(call.call_id, CallState.DENIED if denied else CallState.FAILED, content)
            case AskAgain(superseded, approval, reason):
                return SubjectChanged(call.call_id, superseded, approval, reason)
            case Ready():
                question = self._proposals.question_about(turn, call, launch)
                return SubjectChanged(call.call_id, approved, question)
            case _:
                assert_never(launch)

    def _tool(self, call: Call) -> Tool:
        tool = self._agent.tools.get(call.tool)
        return Withdrawn() if tool is None else tool

    async def execution_of(self, turn: Turn, call: Call) -> Execution:
        """Rebuild the committed names of a call that is executing.

        Raises:
            KernelBug: The call was never begun.
        """
        if call.operation_id is None:
            raise KernelBug("a call executes without an operation", call=call.call_id)
        binding = await self._store.binding(call.binding_id) if call.binding_id else None
        return Execution(
            operation_id=call.operation_id,
            process_id=call.process_id,
            binding_id=call.binding_id,
            candidate=binding.candidate if binding else None,
            principal_id=turn.principal_id,
        )

    async def stop(self, turn: Turn, call: Call) -> None:
        """End the process of a call whose turn was cancelled, then let the provider forget it."""
        await _end(self._tool(call), await self.execution_of(turn, call))

    async def _reload(self, turn: Turn) -> Turn:
        return (await self._store.turn(turn.turn_id)).turn


async def _end(tool: Tool, execution: Execution) -> None:
    await tool.stop(execution)
    await tool.release(execution)


def _readable(request: CallRequest) -> CallRequest:
    return CallRequest(_well_formed(request.tool), _well_formed(request.arguments))


def _well_formed(text: str) -> str:
    """Replace lone surrogates, which a model can emit and neither a store nor a wire can hold."""
    return text.encode(errors="replace").decode()


def _process_ended(result: ProcessResult | None) -> ProcessEnded | None:
    if result is None:
        return None
    return ProcessEnded(
        cause=result.cause,
        exit_code=result.exit_code,
        signal=result.signal,
        duration_ms=round(result.duration.total_seconds() * 1000),
        stdout=OutputDigest(result.stdout.total_bytes, result.stdout.sha256),
        stderr=OutputDigest(result.stderr.total_bytes, result.stderr.sha256),
    )
