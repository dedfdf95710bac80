"""Reading a prompt the way the built-in models do: what was said last, and what came back since."""

from collections.abc import Sequence

from tyrum_gateway.domain.model import AssistantStep, Message, Prompt, ToolOutput, UserText


def last_user_text(prompt: Prompt) -> str:
    """Return the newest user message, empty when there is none."""
    return next((message.text for message in reversed(prompt.messages) if isinstance(message, UserText)), "")


def steps_taken(prompt: Prompt) -> int:
    """Count the assistant's steps since the newest user message."""
    return sum(isinstance(message, AssistantStep) for message in _since_user(prompt))


def outputs(prompt: Prompt) -> Sequence[ToolOutput]:
    """List what tools returned since the newest user message, oldest first."""
    return [message for message in _since_user(prompt) if isinstance(message, ToolOutput)]


def offered(prompt: Prompt) -> frozenset[str]:
    """Return the ids of the tools shown to the step."""
    return frozenset(schema.tool for schema in prompt.tools)


def _since_user(prompt: Prompt) -> Sequence[Message]:
    for position in range(len(prompt.messages) - 1, -1, -1):
        if isinstance(prompt.messages[position], UserText):
            return prompt.messages[position + 1 :]
    return prompt.messages
