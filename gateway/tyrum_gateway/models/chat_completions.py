"""OpenAI's Chat Completions: a prompt rendered for it, and its stream read.

A step has ended only with `[DONE]` after a `finish_reason`; one that we do not know is an end like another.
Compatible servers differ in how they tell calls apart: by index, by id alone, or by sending each call in one
piece; in whether ids are stable; and in the types of what they send.
"""

import json
from collections.abc import Mapping
from typing import Any, assert_never

from tyrum_gateway.domain.model import AssistantStep, Message, Prompt, StepEnd, ToolOutput, UserText
from tyrum_gateway.domain.usage import UNKNOWN, Usage
from tyrum_gateway.models import server_words
from tyrum_gateway.models.call_fragments import Calls, Fragments
from tyrum_gateway.models.conversation import conversation
from tyrum_gateway.models.failures import Ending, StreamEnded
from tyrum_gateway.models.rendering import past_arguments, plain, shown
from tyrum_gateway.models.tool_names import ToolNames
from tyrum_gateway.models.wire_json import (
    arguments,
    items,
    mapping,
    number,
    position,
    read_object,
    text,
    words,
)

DONE = "[DONE]"
_LIMITS = frozenset({"length", "max_tokens", "model_length"})
_REFUSALS = frozenset({"content_filter", "refusal", "safety", "sensitive", "recitation"})
_ERRORS = frozenset({"error", "abort", "cancelled", "network_error", "insufficient_system_resource"})
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


class ChatReader:
    """Reads the stream of one step."""

    def __init__(self) -> None:
        self.emitted = False
        self.done = False
        self._calls = Calls()
        self._current: dict[int, Fragments] = {}
        self._last: Fragments | None = None
        self._finish = ""
        self._deltas = False
        self._refused = False
        self.usage = UNKNOWN

    def feed(self, data: str, name: str = "") -> str:
        """Take the data and the name of an event; return the text that it brings.

        Raises:
            StreamEnded: The event is an error, or cannot be read.
            ModelUnavailable: The step makes more calls than are taken.
        """
        if data.strip() == DONE:
            self.done = True
            return ""
        event = read_object(data)
        if event.get("error") or name == "error" or event.get("object") == "error":
            raise _error(event)
        if usage := mapping(event, "usage"):
            self.usage = Usage(number(usage, "prompt_tokens"), number(usage, "completion_tokens"))
        said = ""
        for choice in items(event, "choices"):
            if position(choice, "index"):
                continue  # one answer was asked for
            said += self._add(choice)
            self._finish = text(choice, "finish_reason") or self._finish
        self.emitted = self.emitted or bool(said)
        return said

    def _add(self, choice: Mapping[str, object]) -> str:
        delta = mapping(choice, "delta")
        self._deltas = self._deltas or bool(delta)
        if not self._deltas:
            delta = mapping(choice, "message")  # the whole answer in one event, as some servers send it
        self._refused = self._refused or bool(text(delta, "refusal"))
        for piece in items(delta, "tool_calls"):
            self._take(piece, mapping(piece, "function") or piece)
        for function in items(delta, "function_call"):
            self._take({"index": 0}, function)
        return words(delta, "content")

    def _take(self, piece: Mapping[str, object], function: Mapping[str, object]) -> None:
        self.emitted = True
        index, identity = position(piece, "index"), text(piece, "id")
        name, given = text(function, "name"), arguments(function, "arguments", "input")
        call = self._last if index is None else self._current.get(index)
        if call is None or _is_another(call, identity, name, given):
            call = self._calls.begin(identity)
        self._calls.extend(call, name=name, arguments=given)
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
        finish = self._finish.lower()
        if finish in _REFUSALS or self._refused:
            raise StreamEnded(Ending.REFUSED)
        if finish in _LIMITS:
            raise StreamEnded(Ending.CUT_OFF)
        if finish in _ERRORS:
            raise StreamEnded(Ending.FAILED, f"finish reason `{self._finish}`")
        if finish in {"tool_calls", "function_call"} and not self._calls:
            raise StreamEnded(Ending.BROKEN_OFF)
        return StepEnd(self._calls.complete(names), self.usage)


def _is_another(call: Fragments, identity: str, name: str, given: str) -> bool:
    """Tell whether a piece with the index of a call begins another one.

    Some servers give every call the index 0, with an id of its own or, sent in one piece, without any; others
    give one call another id with each piece. So no id begins a call by itself: the one before must be whole.
    """
    if identity and identity == call.identity:
        return False
    if call.is_object():
        return bool(name) or bool(identity and given.strip())
    return bool(name and identity and call.identity and call.names) and not (given or call.arguments)


def _error(event: Mapping[str, object]) -> StreamEnded:
    said = server_words.message_of(event)
    if server_words.says_too_long(event):
        return StreamEnded(Ending.TOO_LONG)
    rejected = text(mapping(event, "error"), "type") in _REJECTED
    return StreamEnded(Ending.REJECTED if rejected else Ending.FAILED, said)
