"""Prompts are built from a window of the transcript; only the kernel writes the instructions."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from tests.domain.samples import ALICE, NOW, SLOW, fresh
from tyrum_gateway.domain.checkpoint import Checkpoint
from tyrum_gateway.domain.ids import CallId, ConversationId, TurnId
from tyrum_gateway.domain.model import AssistantStep, Prompt, ToolOutput, ToolSchema, UserText
from tyrum_gateway.domain.past_turn import past_turns
from tyrum_gateway.domain.ports import Window
from tyrum_gateway.domain.prompt import KERNEL_INSTRUCTIONS, assemble
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.transcript import (
    AssistantMessage,
    AttemptAbandoned,
    Event,
    Payload,
    ToolCallFinished,
    ToolCallProposed,
    TurnFinished,
    UserMessage,
)

CONVERSATION = fresh(ConversationId)


def events(turn_id: TurnId, *payloads: Payload) -> tuple[Event, ...]:
    """Make events of a turn."""
    return tuple(Event(index + 1, CONVERSATION, turn_id, NOW, item) for index, item in enumerate(payloads))


def build(own: tuple[Event, ...], earlier: tuple[Event, ...] = (), **window: Any) -> Prompt:
    """Assemble a prompt."""
    values = {"checkpoint": Checkpoint(3, "Turn 3\nuser: old"), "complete": True, **window}
    tools = [ToolSchema("b", "", {}), ToolSchema("a", "", {})]
    return assemble(
        operator_instructions="Be brief.",
        window=Window(earlier=past_turns(earlier), own=own, **values),
        tools=tools,
    )


def asked(text: str) -> UserMessage:
    """Have the user say something."""
    return UserMessage(text, ALICE.principal_id)


def one_call(step: int) -> tuple[ToolCallProposed, ToolCallFinished]:
    """Make a finished call."""
    call_id = fresh(CallId)
    return (
        ToolCallProposed(call_id, step, "process.run", "{}"),
        ToolCallFinished(call_id, CallState.SUCCEEDED, f"result {step}"),
    )


def test_a_turn_reads_in_its_order() -> None:
    """A user's text, the step with its calls, the results, and the next step follow each other."""
    (first, first_end), (second, second_end) = one_call(1), one_call(1)
    prompt = build(
        events(
            fresh(TurnId),
            asked("go"),
            AssistantMessage(1, 1, "looking"),
            first,
            second,
            first_end,
            second_end,
            AssistantMessage(2, 1, "done"),
        )
    )
    user, step, one, two, last = prompt.messages
    assert (user, last) == (UserText("go"), AssistantStep("done"))
    assert isinstance(step, AssistantStep)
    assert (step.text, [call.call_id for call in step.calls]) == ("looking", [first.call_id, second.call_id])
    assert [one, two] == [
        ToolOutput(first.call_id, "process.run", "result 1"),
        ToolOutput(second.call_id, "process.run", "result 1"),
    ]


def test_turns_that_waited_do_not_interleave() -> None:
    """A message that was queued while a turn ran is read after that turn, whatever the sequence says."""
    running, queued = fresh(TurnId), fresh(TurnId)
    earlier = (
        *events(running, asked("first")),
        *events(queued, asked("second")),
        *events(running, AssistantMessage(1, 1, "answer"), TurnFinished(TurnState.COMPLETED)),
    )
    assert build(events(queued), earlier).messages == (
        UserText("first"),
        AssistantStep("answer"),
        UserText("second"),
    )


def test_only_kernel_and_operator_instruct() -> None:
    """Nothing a user, a model or a tool said is in the instructions; tools are sorted."""
    call, end = one_call(1)
    prompt = build(events(fresh(TurnId), asked("INJECT"), AssistantMessage(1, 1, "INJECT"), call, end))
    assert prompt.instructions == f"{KERNEL_INSTRUCTIONS}\n\nBe brief."
    assert [schema.tool for schema in prompt.tools] == ["a", "b"]


def test_summary_stands_in_only_for_what_is_missing() -> None:
    """The checkpoint is shown exactly when the window does not reach back to the beginning."""
    own = events(fresh(TurnId), asked("x"))
    assert build(own).conversation_state == ""
    assert build(own, complete=False).conversation_state == "Turn 3\nuser: old"


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(st.data())
def test_calls_and_results_come_in_pairs(data: DataObject) -> None:
    """Wherever the window cuts the transcript, no result lacks its call and no call its result."""
    payloads: list[Payload] = [asked("go")]
    for step in range(1, data.draw(st.integers(1, 4)) + 1):
        if data.draw(st.booleans()):
            payloads.append(AttemptAbandoned(step, 1, "restart"))
        if data.draw(st.booleans()):
            payloads.append(AssistantMessage(step, 1, "text", incomplete=data.draw(st.booleans())))
        pairs = [one_call(step) for _ in range(data.draw(st.integers(0, 3)))]
        payloads += [proposal for proposal, _ in pairs]
        payloads += [end for _, end in pairs]
    first = data.draw(st.integers(0, len(payloads) - 1))
    last = data.draw(st.integers(first, len(payloads)))
    prompt = build(events(fresh(TurnId), asked("now")), events(fresh(TurnId), *payloads[first:last]))
    pending: list[CallId] = []
    for message in prompt.messages:
        match message:
            case AssistantStep(calls=calls):
                assert not pending
                pending = [call.call_id for call in calls]
            case ToolOutput(call_id=call_id):
                assert pending.pop(0) == call_id
            case _:
                assert not pending
    assert not pending
