"""OpenAI's Chat Completions: a prompt rendered for it, and its stream read.

A step has ended only with `[DONE]` after a `finish_reason` that we know. Compatible servers differ in how
they tell calls apart: by index, by id alone, or by sending each call in one piece.
"""

import json
from collections.abc import Mapping
from typing import Any, assert_never

from tyrum_gateway.domain.model import AssistantStep, Message, Prompt, StepEnd, ToolOutput, UserText
from tyrum_gateway.domain.usage import UNKNOWN, Usage
from tyrum_gateway.models.call_fragments import Calls, Fragments
from tyrum_gateway.models.conversation import conversation
from tyrum_gateway.models.failures import Ending, StreamEnded
from tyrum_gateway.models.rendering import past_arguments, plain, shown
from tyrum_gateway.models.tool_names import ToolNames
from tyrum_gateway.models.wire_json import items, mapping, number, read_object, text

DONE = "[DONE]"
_TOO_LONG = frozenset({"context_length_exceeded", "string_above_max_length"})
_REJECTED = frozenset(
    {"invalid_request_error", "authentication_error", "permission_error", "not_found_error"}
)


def render(
    prompt: Prompt, names: ToolNames, *, model: str, max_output_tokens: int | None
) -> Mapping[str, Any]:
    """Return the request's body."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": prompt.instructions}]
    messages += [_message(message, names) for message in conversation(prompt)]
    body: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if prompt.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": names.name_of(schema.tool),
                    "description": schema.description,
                    "parameters": plain(schema.parameters),
                },
            }
            for schema in prompt.tools
        ]
    if max_output_tokens is not None:
        body["max_completion_tokens"] = max_output_tokens
    return body


def _message(message: Message, names: ToolNames) -> dict[str, Any]:
    match message:
        case UserText(text=said):
            return {"role": "user", "content": shown(said)}
        case ToolOutput(call_id=call_id, content=content):
            return {"role": "tool", "tool_call_id": str(call_id), "content": content}
        case AssistantStep(text=said, calls=()):
            return {"role": "assistant", "content": shown(said)}
        case AssistantStep(text=said, calls=calls):
            made = [
                {
                    "id": str(call.call_id),
                    "type": "function",
                    "function": {
                        "name": names.name_of(call.tool),
                        "arguments": json.dumps(past_arguments(call.arguments), ensure_ascii=False),
                    },
                }
                for call in calls
            ]
            return {"role": "assistant", "content": said or None, "tool_calls": made}
        case _:
            assert_never(message)


def says_too_long(body: object) -> bool:
    """Tell whether the body of an error says that the prompt does not fit."""
    error = body.get("error", body) if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return False
    return text(error, "code") in _TOO_LONG or "maximum context length" in text(error, "message")


class ChatReader:
    """Reads the stream of one step."""

    def __init__(self) -> None:
        self.emitted = False
        self.done = False
        self._calls = Calls()
        self._current: dict[int, Fragments] = {}
        self._last: Fragments | None = None
        self._finish = ""
        self._refused = False
        self.usage = UNKNOWN

    def feed(self, data: str) -> str:
        """Take the data of an event; return the text that it brings.

        Raises:
            StreamEnded: The event is an error, or cannot be read.
            ModelUnavailable: The step makes more calls than are taken.
        """
        if data.strip() == DONE:
            self.done = True
            return ""
        event = read_object(data)
        if event.get("error"):
            raise StreamEnded(_error(event))
        if usage := mapping(event, "usage"):
            self.usage = Usage(number(usage, "prompt_tokens"), number(usage, "completion_tokens"))
        said = ""
        for choice in items(event, "choices"):
            if number(choice, "index"):
                continue  # one answer was asked for
            delta = mapping(choice, "delta")
            said += text(delta, "content")
            self._refused = self._refused or bool(text(delta, "refusal"))
            for piece in items(delta, "tool_calls"):
                self._take(piece)
            self._finish = text(choice, "finish_reason") or self._finish
        self.emitted = self.emitted or bool(said)
        return said

    def _take(self, piece: Mapping[str, object]) -> None:
        self.emitted = True
        index, identity = number(piece, "index"), text(piece, "id")
        function = mapping(piece, "function")
        name, arguments = text(function, "name"), text(function, "arguments")
        call = self._last if index is None else self._current.get(index)
        if call is None or _is_another(call, identity, name):
            call = self._calls.begin(identity)
        self._calls.extend(call, name="" if call.name else name, arguments=arguments)
        call.identity = call.identity or identity
        self._last = call
        if index is not None:
            self._current[index] = call

    def end(self, names: ToolNames) -> StepEnd:
        """Return the step when the stream ended as the protocol says.

        Raises:
            StreamEnded: It did not, or the step is none that counts.
        """
        if not self.done or not self._finish:
            raise StreamEnded(Ending.BROKEN_OFF)
        if self._finish == "content_filter" or self._refused:
            raise StreamEnded(Ending.REFUSED)
        if self._finish == "length":
            raise StreamEnded(Ending.CUT_OFF)
        if self._finish not in {"stop", "tool_calls"} or (self._finish == "tool_calls" and not self._calls):
            raise StreamEnded(Ending.BROKEN_OFF)
        calls = self._calls.complete(names)
        if calls is None:
            raise StreamEnded(Ending.MALFORMED)
        return StepEnd(calls, self.usage)


def _is_another(call: Fragments, identity: str, name: str) -> bool:
    """Tell whether a piece with the index of a call begins another one.

    Some servers give every call the index 0, with an id of its own or, sent in one piece, without any.
    """
    if identity and call.identity:
        return identity != call.identity
    return bool(name and call.name) and call.is_object()


def _error(event: Mapping[str, object]) -> Ending:
    error = mapping(event, "error")
    if says_too_long(event):
        return Ending.TOO_LONG
    return Ending.REJECTED if text(error, "type") in _REJECTED else Ending.FAILED
