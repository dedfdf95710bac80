"""Prompts as the kernel assembles them."""

from tyrum_gateway.domain.ids import CallId
from tyrum_gateway.domain.model import (
    AssistantStep,
    CallRequest,
    Message,
    Model,
    PastCall,
    Prompt,
    StepEnd,
    TextDelta,
    ToolOutput,
    ToolSchema,
    UserText,
)

ONE, TWO = CallId("call_0000000000000000000000000a"), CallId("call_0000000000000000000000000b")
CALL = ONE


def prompt(*messages: Message, tools: tuple[str, ...] = ("process.run",), instructions: str = "") -> Prompt:
    """Build a prompt that shows these tools."""
    return Prompt(instructions, "", messages, tuple(ToolSchema(tool, "", {}) for tool in tools))


def said(text: str) -> UserText:
    """Have the user say something."""
    return UserText(text)


def called(output: str, text: str = "") -> tuple[AssistantStep, ToolOutput]:
    """Have made one call that came back."""
    step = AssistantStep(text, (PastCall(CALL, "process.run", "{}"),))
    return step, ToolOutput(CALL, "process.run", output)


def step_with(*arguments: str, tool: str = "process.run", text: str = "") -> tuple[Message, ...]:
    """Make a past step of one or two calls, and their results."""
    calls = tuple(PastCall(call_id, tool, item) for call_id, item in zip((ONE, TWO), arguments, strict=False))
    return AssistantStep(text, calls), *(ToolOutput(call.call_id, tool, "came back") for call in calls)


async def play(model: Model, given: Prompt) -> tuple[list[str], tuple[CallRequest, ...]]:
    """Collect the deltas and the calls of one step; the end must come last and once."""
    deltas: list[str] = []
    ends: list[StepEnd] = []
    async for event in model.generate(given):
        assert not ends, "nothing follows the end"
        match event:
            case TextDelta(text):
                deltas.append(text)
            case StepEnd():
                ends.append(event)
    assert len(ends) == 1
    return deltas, ends[0].calls
