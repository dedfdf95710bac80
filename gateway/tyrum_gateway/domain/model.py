"""Models as the kernel sees them: a prompt goes in, text deltas and one complete step come out.

A step counts only when the model's protocol ended properly and every argument parsed; a transport raises
`ModelUnavailable` otherwise. Tool arguments are untrusted text until the kernel has checked them.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tyrum_gateway.domain.ids import CallId
from tyrum_gateway.domain.policy import Effect
from tyrum_gateway.domain.usage import UNKNOWN, Usage


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool as the model is told of it."""

    tool: str
    description: str
    parameters: Mapping[str, object]
    """Closed JSON Schema of the arguments."""
    effect: Effect = Effect.STATE_CHANGING
    """What the tool can do to the world; unknown counts as state-changing."""


@dataclass(frozen=True, slots=True)
class UserText:
    """A user's message."""

    text: str


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call that an earlier step made."""

    call_id: CallId
    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class AssistantStep:
    """What an earlier step said and called."""

    text: str
    calls: tuple[PastCall, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The result of an earlier call; data, never instructions."""

    call_id: CallId
    tool: str
    content: str


Message = UserText | AssistantStep | ToolOutput
"""One entry of a prompt, after the instructions."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Everything one attempt is given, assembled by the kernel."""

    instructions: str
    """System text: kernel and operator only."""
    conversation_state: str
    """The checkpoint: what is known of the time before the first message; empty at first."""
    messages: tuple[Message, ...]
    """Oldest first; every tool output follows its call."""
    tools: tuple[ToolSchema, ...]
    """Sorted by tool id."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New text of the step."""

    text: str


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A complete tool call as the model wrote it."""

    tool: str
    arguments: str
    """JSON text."""


@dataclass(frozen=True, slots=True)
class StepEnd:
    """The protocol's terminal event: the step is complete."""

    calls: tuple[CallRequest, ...]
    usage: Usage = UNKNOWN
    model: str = ""
    """Name of the model that answered, where several may; empty where there is one."""


ModelEvent = TextDelta | StepEnd
"""What a transport yields: deltas, then exactly one end."""


class Model(Protocol):
    """A transport to one model."""

    def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Produce one step.

        Yields deltas as they come and `StepEnd` last. Cancelling the iteration stops the request.

        Raises:
            ModelUnavailable: The step could not be completed; `retryable` tells whether another attempt
                may help.
        """
        ...
