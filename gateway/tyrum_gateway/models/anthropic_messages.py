"""Anthropic's Messages: a prompt rendered for it, and its stream read.

A step has ended only with `message_stop` after a `stop_reason`; one that we do not know is an end like
another. Roles alternate; the results of all calls of a step come first in the next message of the user.
"""

from collections.abc import Mapping
from typing import Any, assert_never

from tyrum_gateway.domain.model import AssistantStep, Prompt, StepEnd, ToolOutput, UserText
from tyrum_gateway.domain.usage import Usage
from tyrum_gateway.models import server_words
from tyrum_gateway.models.call_fragments import Calls, Fragments
from tyrum_gateway.models.conversation import conversation
from tyrum_gateway.models.failures import Ending, StreamEnded
from tyrum_gateway.models.rendering import past_arguments, plain, shown
from tyrum_gateway.models.tool_names import ToolNames
from tyrum_gateway.models.wire_json import arguments, mapping, number, position, read_object, text, words

_REJECTED = frozenset(
    {"invalid_request_error", "authentication_error", "permission_error", "not_found_error", "billing_error"}
)
_PROMPT_PARTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

Block = dict[str, Any]


def render(prompt: Prompt, names: ToolNames, *, model: str, max_output_tokens: int) -> Mapping[str, Any]:
    """Return the request's body."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": max_output_tokens,
        "messages": _messages(prompt, names),
        "stream": True,
    }
    if prompt.instructions.strip():
        body["system"] = prompt.instructions
    if prompt.tools:
        body["tools"] = [
            {
                "name": names.name_of(schema.tool),
                "description": schema.description,
                "input_schema": plain(schema.parameters),
            }
            for schema in prompt.tools
        ]
    elif past := sorted(set(_past_names(prompt, names))):
        # Past calls are refused in a request that declares no tool; these cannot be called.
        nothing = {"type": "object", "properties": {}}
        body["tools"] = [{"name": name, "description": "Gone.", "input_schema": nothing} for name in past]
        body["tool_choice"] = {"type": "none"}
    return body


def _past_names(prompt: Prompt, names: ToolNames) -> list[str]:
    steps = (message for message in prompt.messages if isinstance(message, AssistantStep))
    return [names.name_of(call.tool) for step in steps for call in step.calls]


def _messages(prompt: Prompt, names: ToolNames) -> list[dict[str, Any]]:
    turns: list[tuple[str, list[Block]]] = []

    def say(role: str, blocks: list[Block]) -> None:
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, blocks))

    for message in conversation(prompt):
        match message:
            case UserText(text=said):
                say("user", [_text(said)])
            case ToolOutput(call_id=call_id, content=content):
                result: Block = {"type": "tool_result", "tool_use_id": str(call_id)}
                if content:
                    result["content"] = content
                say("user", [result])
            case AssistantStep(text=said, calls=calls):
                spoken = [_text(said)] if said.strip() or not calls else []
                made: list[Block] = [
                    {
                        "type": "tool_use",
                        "id": str(call.call_id),
                        "name": names.name_of(call.tool),
                        "input": dict(past_arguments(call.arguments)),
                    }
                    for call in calls
                ]
                say("assistant", [*spoken, *made])
            case _:
                assert_never(message)
    return [{"role": role, "content": blocks} for role, blocks in turns]


def _text(said: str) -> Block:
    return {"type": "text", "text": shown(said)}


class MessageReader:
    """Reads the stream of one step."""

    def __init__(self) -> None:
        self.emitted = False
        self.done = False
        self._calls = Calls()
        self._blocks: dict[int | None, Fragments | None] = {}
        """Blocks by index; None for one of a kind that is skipped. Where there is no index, the newest."""
        self._stop = ""
        self._input: int | None = None
        self._output: int | None = None

    @property
    def usage(self) -> Usage:
        """What the server told so far."""
        return Usage(self._input, self._output)

    def feed(self, data: str, name: str = "") -> str:
        """Take the data and the name of an event; return the text that it brings.

        Raises:
            StreamEnded: The event is an error, or cannot be read.
            ModelUnavailable: The step makes more calls than are taken.
        """
        event = read_object(data)
        said = ""
        match "error" if event.get("error") else text(event, "type") or name:
            case "message_start":
                self._count(mapping(mapping(event, "message"), "usage"))
                self._output = None  # what is told here is a beginning
            case "content_block_start":
                said = self._begin(position(event, "index"), mapping(event, "content_block"))
            case "content_block_delta":
                said = self._add(position(event, "index"), mapping(event, "delta"))
            case "message_delta":
                self._stop = text(mapping(event, "delta"), "stop_reason") or self._stop
                self._count(mapping(event, "usage"))
            case "message_stop":
                self.done = True
            case "error":
                raise _error(event)
            case _:
                pass  # pings, ends of blocks, and what later versions of the protocol add
        self.emitted = self.emitted or bool(said)
        return said

    def _begin(self, index: int | None, block: Mapping[str, object]) -> str:
        self._blocks[index] = None
        if text(block, "type") == "text":
            return words(block, "text")
        if text(block, "type") == "tool_use":
            self.emitted = True
            call = self._blocks[index] = self._calls.begin(text(block, "id"))
            # An empty object stands for arguments that are to come.
            given = arguments(block, "input") if block.get("input") != {} else ""
            self._calls.extend(call, name=text(block, "name"), arguments=given)
        return ""

    def _add(self, index: int | None, delta: Mapping[str, object]) -> str:
        match text(delta, "type"):
            case "text_delta":
                return words(delta, "text")
            case "input_json_delta":
                if index not in self._blocks:
                    raise StreamEnded(Ending.UNREADABLE)
                if (call := self._blocks[index]) is not None:
                    self._calls.extend(call, arguments=arguments(delta, "partial_json"))
            case "":
                return words(delta, "text")
            case _:
                pass  # thinking and citations are not part of what is said
        return ""

    def _count(self, usage: Mapping[str, object]) -> None:
        if number(usage, "input_tokens") is not None:
            self._input = sum(number(usage, part) or 0 for part in _PROMPT_PARTS)
        outgoing = number(usage, "output_tokens")
        self._output = self._output if outgoing is None else outgoing

    def end(self, names: ToolNames) -> StepEnd:
        """Return the step when the stream ended as the protocol says.

        Raises:
            StreamEnded: It did not, or the step is none that counts.
        """
        if not self.done:
            raise StreamEnded(Ending.BROKEN_OFF)
        match self._stop:
            case "max_tokens":
                raise StreamEnded(Ending.CUT_OFF)
            case "refusal":
                raise StreamEnded(Ending.REFUSED)
            case "model_context_window_exceeded":
                raise StreamEnded(Ending.TOO_LONG)
            case "pause_turn":
                raise StreamEnded(Ending.PAUSED)
            case "":
                raise StreamEnded(Ending.BROKEN_OFF)
            case "tool_use" if not self._calls:
                raise StreamEnded(Ending.BROKEN_OFF)
            case _:
                pass
        return StepEnd(self._calls.complete(names), self.usage)


def _error(event: Mapping[str, object]) -> StreamEnded:
    if server_words.says_too_long(event):
        return StreamEnded(Ending.TOO_LONG)
    rejected = text(mapping(event, "error"), "type") in _REJECTED
    return StreamEnded(Ending.REJECTED if rejected else Ending.FAILED, server_words.message_of(event))
