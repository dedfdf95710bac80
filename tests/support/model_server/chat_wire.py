"""The scripted model server's Chat Completions: what a request must be, and how a step is sent."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from tests.support.model_server.json_text import written
from tests.support.model_server.request import Request
from tests.support.model_server.script import CallPiece, Ending, Piece, Quirk, Step, TextPiece

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FINISH = {
    Ending.LENGTH: "length",
    Ending.REFUSAL: "content_filter",
    Ending.OVERFLOW: "length",
    Ending.PAUSE: "paused",
}
PATH = "/v1/chat/completions"


class ChatWire:
    """Sends one step."""

    def __init__(self, identity: str, step: Step) -> None:
        self._identity = identity
        self._step = step

    def head(self) -> Iterator[bytes]:
        """What comes before the first piece."""
        yield self._chunk({"role": "assistant", "content": ""})

    def piece(self, piece: Piece) -> Iterator[bytes]:
        """A piece of text or of a call."""
        match piece:
            case TextPiece(text):
                yield self._chunk({"content": text})
            case CallPiece():
                yield self._chunk({"tool_calls": [self._call(piece)]})

    def _call(self, piece: CallPiece) -> Mapping[str, Any]:
        quirk = self._step.quirk
        function: dict[str, Any] = {"arguments": piece.fragment}
        part: dict[str, Any] = {"index": piece.position, "function": function}
        if piece.first:
            part |= {"id": f"{self._identity}-{piece.position}", "type": "function"}
            function["name"] = piece.call.name
        match quirk:
            case Quirk.NO_IDS:
                part.pop("id", None)
            case Quirk.ONE_INDEX:
                part["index"] = 0
            case Quirk.NO_INDEX:
                del part["index"]
            case Quirk.WHOLE:
                part["index"] = 0
                part.pop("id", None)
            case Quirk.NONE:
                pass
        return part

    def tail(self) -> Iterator[bytes]:
        """What comes after the last piece, up to the end itself."""
        finish = _FINISH.get(self._step.ending) or ("tool_calls" if self._step.calls else "stop")
        yield self._chunk({}, finish)
        if self._step.usage is not None:
            usage = self._step.usage
            told = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
            yield _event({"id": self._identity, "choices": [], "usage": told})

    def end(self) -> Iterator[bytes]:
        """The protocol's end."""
        yield b"data: [DONE]\n\n"

    def error(self, kind: str) -> Iterator[bytes]:
        """An error within the stream."""
        yield _event({"error": {"type": kind, "message": "CANARY of the server", "code": None}})

    def ping(self) -> bytes:
        """A sign of life."""
        return b": keep-alive\n\n"

    def refusal(self, status: int) -> str:
        """The body of an error."""
        code = "context_length_exceeded" if status == 400 else None
        return json.dumps({"error": {"message": "CANARY of the server", "type": "error", "code": code}})

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _event({"id": self._identity, "object": "chat.completion.chunk", "choices": [choice]})


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + written(value).encode() + b"\n\n"


def problems(request: Request) -> Iterator[str]:
    """Say what a strict server would refuse."""
    body = request.body
    if body.get("stream") is not True or body.get("stream_options") != {"include_usage": True}:
        yield "no stream with usage is asked for"
    if request.headers.get("content-type") != "application/json":
        yield "the body is not declared as JSON"
    yield from _order(request)
    open_calls: list[str] = []
    for message in request.messages:
        role = message["role"]
        if role == "tool":
            if message["tool_call_id"] not in open_calls:
                yield f"a result without its call: {message['tool_call_id']}"
            else:
                open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            yield f"calls without results: {open_calls}"
        open_calls = []
        if role == "assistant":
            calls = message.get("tool_calls", [])
            if not calls and not message.get("content"):
                yield "an empty message of the assistant"
            for call in calls:
                open_calls.append(call["id"])
                if not _NAME.fullmatch(call["function"]["name"]):
                    yield f"`{call['function']['name']}` is no allowed name"
                if not isinstance(json.loads(call["function"]["arguments"]), dict):
                    yield "arguments of a past call are no object"
        elif not message.get("content"):
            yield f"an empty message of the {role}"
    if open_calls:
        yield f"calls without results: {open_calls}"


def _order(request: Request) -> Iterator[str]:
    """Say what templates refuse that demand alternating roles, such as Mistral's."""
    spoken = [message["role"] for message in request.messages if message["role"] != "system"]
    if not spoken or spoken[0] != "user":
        yield "the user does not begin"
    if spoken and spoken[-1] == "assistant":
        yield "the assistant comes last"
    for one, other in pairwise(spoken):
        if (one, other) in {("user", "user"), ("assistant", "assistant"), ("tool", "user"), ("user", "tool")}:
            yield f"the roles do not alternate: {other} after {one}"
    if any(message["role"] == "system" for message in request.messages[1:]):
        yield "system text within the conversation"
