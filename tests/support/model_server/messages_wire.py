"""The scripted model server's Messages: what a request must be, and how a step is sent."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from tests.support.model_server.json_text import written
from tests.support.model_server.request import Request
from tests.support.model_server.script import CallPiece, Ending, Piece, Step, TextPiece

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_STOP = {
    Ending.LENGTH: "max_tokens",
    Ending.REFUSAL: "refusal",
    Ending.OVERFLOW: "model_context_window_exceeded",
    Ending.PAUSE: "pause_turn",
}
PATH = "/v1/messages"


class MessagesWire:
    """Sends one step."""

    def __init__(self, identity: str, step: Step) -> None:
        self._identity = identity
        self._step = step
        self._open: list[int] = []
        self._text_open = False

    def head(self) -> Iterator[bytes]:
        """What comes before the first piece."""
        usage = self._step.usage
        told = {} if usage is None else {"usage": {"input_tokens": usage.input_tokens, "output_tokens": 1}}
        yield _event("message_start", message={"id": self._identity, "role": "assistant", **told})

    def piece(self, piece: Piece) -> Iterator[bytes]:
        """A piece of text or of a call."""
        match piece:
            case TextPiece(text):
                if not self._text_open:
                    self._text_open = True
                    self._open.append(0)
                    yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
                yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})
            case CallPiece():
                index = piece.position + 1
                if piece.first:
                    self._open.append(index)
                    block = {
                        "type": "tool_use",
                        "id": f"{self._identity}-{piece.position}",
                        "name": piece.call.name,
                        "input": {},
                    }
                    yield _event("content_block_start", index=index, content_block=block)
                delta = {"type": "input_json_delta", "partial_json": piece.fragment}
                yield _event("content_block_delta", index=index, delta=delta)

    def tail(self) -> Iterator[bytes]:
        """What comes after the last piece, up to the end itself."""
        for index in self._open:
            yield _event("content_block_stop", index=index)
        stop = _STOP.get(self._step.ending) or ("tool_use" if self._step.calls else "end_turn")
        usage = self._step.usage
        told = {} if usage is None else {"usage": {"output_tokens": usage.output_tokens}}
        yield _event("message_delta", delta={"stop_reason": stop}, **told)

    def end(self) -> Iterator[bytes]:
        """The protocol's end."""
        yield _event("message_stop")

    def error(self, kind: str) -> Iterator[bytes]:
        """An error within the stream."""
        yield _event("error", error={"type": kind, "message": "CANARY of the server"})

    def ping(self) -> bytes:
        """A sign of life."""
        return _event("ping")

    def refusal(self, status: int) -> str:
        """The body of an error."""
        message = "prompt is too long: CANARY of the server" if status == 400 else "CANARY of the server"
        return json.dumps({"type": "error", "error": {"type": "error", "message": message}})


def _event(kind: str, **fields: Any) -> bytes:
    data = written({"type": kind, **fields})
    return f"event: {kind}\ndata: {data}\n\n".encode()


def problems(request: Request) -> Iterator[str]:
    """Say what a strict server would refuse."""
    body = request.body
    if body.get("stream") is not True:
        yield "no stream is asked for"
    if not isinstance(body.get("max_tokens"), int):
        yield "`max_tokens` is missing"
    if "anthropic-version" not in request.headers:
        yield "the version of the protocol is missing"
    roles = request.roles
    if roles[0] != "user" or roles[-1] != "user":
        yield "the user does not begin, or not come last"
    if any(one == other for one, other in pairwise(roles)):
        yield f"the roles do not alternate: {roles}"
    due: set[str] = set()
    for message in request.messages:
        blocks: list[Mapping[str, Any]] = message["content"]
        if not blocks:
            yield "a message without content"
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if set(results) != due or len(results) != len(due):
            yield f"results are {results}, due are {sorted(due)}"
        if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
            yield "results do not come first"
        for block in blocks:
            if block["type"] == "text" and not block["text"].strip():
                yield "a text without text"
        uses = [block for block in blocks if block["type"] == "tool_use"]
        due = {block["id"] for block in uses}
        if uses and not body.get("tools"):
            yield "calls without declared tools"
        for block in uses:
            if not _NAME.fullmatch(block["name"]) or not isinstance(block["input"], dict):
                yield f"a malformed past call of `{block['name']}`"
    if due:
        yield f"calls without results: {sorted(due)}"
