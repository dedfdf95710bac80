"""Answers of servers that differ from the protocol: taken where the meaning is plain, else one clear failure.

Each test is named after what was seen; the bytes are those that a server sent.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.models.remote import failure_of, remote, step_of
from tests.support.model_server import KEY, PROTOCOLS, ModelServer, Refuse, Step
from tyrum_gateway.domain.errors import ModelUnavailable, PromptTooLong
from tyrum_gateway.domain.model import CallRequest, Model, StepEnd
from tyrum_gateway.models import server_words

PRINTF = {"argv": ["printf", "hello-%s", "x"]}
PRINTED = (CallRequest("process.run", json.dumps(PRINTF)),)
STREAM = "text/event-stream"


def chat(*deltas: dict[str, Any], finish: str = "stop", key: str = "delta") -> bytes:
    """Write a stream of Chat Completions, one chunk for each delta."""
    chunks = [{"choices": [{"index": 0, key: delta, "finish_reason": None}]} for delta in deltas]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    return b"".join(data(chunk) for chunk in [*chunks, end]) + b"data: [DONE]\n\n"


def messages(*events: dict[str, Any], stop: str = "end_turn") -> bytes:
    """Write a stream of Messages."""
    end = ({"type": "message_delta", "delta": {"stop_reason": stop}}, {"type": "message_stop"})
    return b"".join(data(event) for event in [*events, *end])


def data(event: object) -> bytes:
    """Write one event."""
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def calling(*pieces: dict[str, Any], finish: str = "tool_calls") -> bytes:
    """Write a stream of pieces of calls."""
    return chat(*({"tool_calls": [piece]} for piece in pieces), finish=finish)


def piece(arguments: Any = None, *, name: str | None = None, **fields: Any) -> dict[str, Any]:
    """Write a piece of the first call."""
    function = {} if arguments is None else {"arguments": arguments}
    function |= {} if name is None else {"name": name}
    return {"index": 0, **fields, "function": function}


@asynccontextmanager
async def answering(
    body: bytes, *, status: str = "200 OK", content_type: str = STREAM, protocol: str = "openai"
) -> AsyncIterator[Model]:
    """Run a server that answers every request with these bytes; give a model that asks it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
        await reader.readexactly(int(length))
        kind = f"content-type: {content_type}\r\n" if content_type else ""
        writer.write(f"HTTP/1.1 {status}\r\n{kind}connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        base_url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
        yield remote(ModelServer(), protocol, "go", base_url=base_url)


async def taken(body: bytes, **how: Any) -> tuple[str, StepEnd]:
    """Take a step from such an answer."""
    async with answering(body, **how) as model:
        return await step_of(model)


async def failed(body: bytes, **how: Any) -> ModelUnavailable:
    """Fail to take one."""
    async with answering(body, **how) as model:
        return (await failure_of(model))[1]


WHOLE = piece(json.dumps(PRINTF), name="process_run", id="a")
CALLS: dict[str, bytes] = {
    "arguments as an object": calling(piece(PRINTF, name="process_run", id="call_1")),
    "another id with each piece": calling(
        piece("", name="process_run", id="id-first"),
        piece('{"argv": [', id="id-other"),
        piece('"printf", "hello-%s", "x"]}', id="id-third"),
    ),
    "another id and the name again with each piece": calling(
        piece('{"argv": [', name="process_run", id="a"),
        piece('"printf", "hello-%s", "x"]}', name="process_run", id="b"),
    ),
    "an id that comes later": calling(
        piece('{"argv": ["printf", ', name="process_run"), piece('"hello-%s", "x"]}', id="late")
    ),
    "a name that comes later": calling(
        piece('{"argv": ["printf", ', id="a"), piece('"hello-%s", "x"]}', name="process_run")
    ),
    "a name in parts": calling(
        piece("", name="process", id="a"), piece(json.dumps(PRINTF), name="_run"), piece("", name="")
    ),
    "a name that grows": calling(
        piece("", name="process", id="a"), piece(json.dumps(PRINTF), name="process_run", id="a")
    ),
    "a name without a function": calling(
        {"index": 0, "id": "a", "name": "process_run", "arguments": json.dumps(PRINTF)}
    ),
    "an index as text": calling(piece('{"argv": ["printf", ', name="process_run", index="0"),
                                piece('"hello-%s", "x"]}', index="0")),
    "a call that is no list": chat({"tool_calls": WHOLE}, finish="tool_calls"),
    "an end that says stop": calling(WHOLE, finish="stop"),
    "an end that nobody knows": calling(WHOLE, finish="eos"),
    "a message for a delta": chat({"tool_calls": [WHOLE]}, key="message"),
    "one function": chat(
        {"function_call": {"name": "process_run", "arguments": json.dumps(PRINTF)}}, finish="function_call"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_whose_meaning_is_plain_is_taken(name: str) -> None:
    """Whatever types, ids and names a compatible server sends, it is the one call that was meant."""
    _, end = await taken(CALLS[name])
    assert end.calls == PRINTED


async def test_args_as_object_with_a_name_twice() -> None:
    """Of two arguments under one name nobody can tell which was meant: no call counts."""
    text = json.dumps(piece("HERE", name="process_run", id="a")).replace(
        '"HERE"', '{"argv": ["true"], "argv": ["rm"]}'
    )
    chunk = f'{{"choices": [{{"index": 0, "delta": {{"tool_calls": [{text}]}}}}]}}'
    assert "no JSON object" in (await failed(b"data: " + chunk.encode() + b"\n\n" + calling())).public


@pytest.mark.parametrize("arguments", [["printf"], 7, True, {"a": float("inf")}])
async def test_arguments_of_no_plain_meaning_are_no_call(arguments: Any) -> None:
    """A list, a number, or an object that JSON cannot carry is one failure, and never `{}`."""
    failure = await failed(calling(piece(arguments, name="process_run", id="a")))
    assert "arguments are no JSON object; nothing was executed" in failure.public


async def test_content_parts() -> None:
    """Text in parts is text; what the model thinks is no part of it."""
    parts = [{"type": "text", "text": "The answer "}, "is ", {"text": "42."}]
    thinking = {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}
    text, end = await taken(chat(thinking, {"content": parts}, {"content": {"type": "text", "text": "!"}}))
    assert (text, end.calls) == ("The answer is 42.!", ())
    assert "not in the protocol" in (await failed(chat({"content": 42}))).public


async def test_a_message_beside_deltas_is_not_said_twice() -> None:
    """Servers that repeat the whole answer in a `message` at the end have said it already."""
    body = chat({"content": "Paris."}).replace(b'"delta": {}', b'"message": {"content": "Paris."}')
    assert (await taken(body))[0] == "Paris."


async def test_empty_data() -> None:
    """`data:` with nothing is a sign of life."""
    body = chat({"content": "hel"}, {"content": "lo"}).replace(b"\n\n", b"\n\ndata:\n\ndata: \n\n: x\n\n")
    assert (await taken(body))[0] == "hello"


@pytest.mark.parametrize(
    "event",
    [
        b'event: error\ndata: {"message":"boom"}\n\n',
        b'data: {"error": "boom"}\n\n',
        b'data: {"error": {"message": "boom"}}\n\n',
        b'data: {"object": "error", "message": "boom"}\n\n',
        b'event: error\ndata: {"detail": [{"msg": "boom"}]}\n\n',
    ],
)
async def test_error_event(event: bytes) -> None:
    """An error within the stream is told as one, in whatever form, with what the server says."""
    failure = await failed(data({"choices": [{"index": 0, "delta": {"content": "hi"}}]}) + event)
    assert "reported an error in its answer. It says: boom" in failure.public
    assert not failure.retryable
    first = await failed(event)
    assert first.retryable


@pytest.mark.parametrize("finish", ["eos", "eos_token", "STOP", "function_call_filter", "done"])
async def test_finish_eos(finish: str) -> None:
    """A reason to end that we do not know ends a step that the protocol closed."""
    assert (await taken(chat({"content": "Paris."}, finish=finish)))[0] == "Paris."
    text = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Paris."}}
    assert (await taken(messages(text, stop=finish), protocol="anthropic"))[0] == "Paris."


@pytest.mark.parametrize(
    ("finish", "part"),
    [("model_length", "limit for one"), ("error", "reported an error"), ("content_filter", "declined")],
)
async def test_reasons_that_are_no_ends_of_a_step(finish: str, part: str) -> None:
    """What says that the answer is not whole stays a failure."""
    assert part in (await failed(calling(WHOLE, finish=finish))).public


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_html_200(protocol: str) -> None:
    """A page instead of a stream is told with its type and its beginning, once."""
    page = f"<html><body>login {KEY} please\x1b[2J</body>{'x' * 9000}</html>".encode()
    failure = await failed(page, content_type="text/html; charset=utf-8", protocol=protocol)
    assert "no event stream (content type `text/html; charset=utf-8`)" in failure.public
    assert "<html><body>login *** please\\x1b[2J</body>xxx" in failure.public
    assert "`base_url` is `http://127.0.0.1:" in failure.public
    assert not failure.retryable
    assert len(failure.public) < 600


async def test_json_200() -> None:
    """A whole answer where a stream was asked for is told as what it is."""
    whole = {"object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "whole"}}]}
    failure = await failed(json.dumps(whole).encode(), content_type="application/json")
    assert "content type `application/json`" in failure.public
    assert '{"object": "chat.completion"' in failure.public
    assert not failure.retryable
    assert "content type `none`" in (await failed(b"", content_type="")).public


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/octet-stream"])
async def test_a_stream_of_another_content_type_is_read(content_type: str) -> None:
    """What begins as an event stream is one."""
    for before in (b"", b"\xef\xbb\xbf", b": hello\n\n", b"\n"):
        assert (await taken(before + chat({"content": "ok"}), content_type=content_type))[0] == "ok"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_invalid_utf8_args(protocol: str) -> None:
    """A byte that is no character is refused before it is decoded: what stood in its place would be run."""
    arguments = '{"argv": ["printf", "aHERE"]}'
    if protocol == "openai":
        body = calling(piece(arguments, name="process_run", id="a"))
    else:
        block = {"type": "tool_use", "id": "a", "name": "process_run", "input": {}}
        body = messages(
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0,
             "delta": {"type": "input_json_delta", "partial_json": arguments}},
            stop="tool_use",
        )  # fmt: skip
    failure = await failed(body.replace(b"HERE", b"\xff"), protocol=protocol)
    assert "bytes that are no characters (UTF-8); nothing was executed" in failure.public


async def test_missing_name() -> None:
    """A call that names no function is told as that."""
    failure = await failed(calling({"index": 0, "id": "call_1", "type": "function"}))
    assert "a call that names no function; nothing was executed" in failure.public
    block = {"type": "tool_use", "id": "a", "input": {"argv": ["ls"]}}
    start = {"type": "content_block_start", "index": 0, "content_block": block}
    assert (
        "names no function" in (await failed(messages(start, stop="tool_use"), protocol="anthropic")).public
    )


async def test_server_tool_block() -> None:
    """Blocks of kinds that we do not know are skipped with their deltas."""
    said = await taken(
        messages(
            {"type": "content_block_start", "index": 0,
             "content_block": {"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}}},
            {"type": "content_block_delta", "index": 0,
             "delta": {"type": "input_json_delta", "partial_json": '{"query":"x"}'}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "x": 1}},
            {"type": "content_block_stop", "index": 0},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "hi"}},
        ),
        protocol="anthropic",
    )  # fmt: skip
    assert said[0] == "hi"
    assert said[1].calls == ()


@pytest.mark.parametrize("given", [PRINTF, json.dumps(PRINTF)], ids=["object", "text"])
@pytest.mark.parametrize("index", [{"index": 0}, {}, {"index": "0"}], ids=["index", "none", "text index"])
async def test_input_as_text_or_object(given: Any, index: dict[str, Any]) -> None:
    """The input of a call may come whole, as an object or as its text, with its block or as a delta."""
    block = {"type": "tool_use", "id": "a", "name": "process_run"}
    start = {"type": "content_block_start", **index}
    delta = {
        "type": "content_block_delta",
        **index,
        "delta": {"type": "input_json_delta", "partial_json": given},
    }
    for body in (
        messages(start | {"content_block": block | {"input": given}}, stop="tool_use"),
        messages(start | {"content_block": block | {"input": {}}}, delta, stop="tool_use"),
    ):
        assert (await taken(body, protocol="anthropic"))[1].calls == PRINTED


OVERFLOWS = [
    (400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "too big", "n_ctx": 4096}}),
    (400, {"error": {"message": "request (9000 tokens) exceeds the available context size (4096 tokens)"}}),
    (
        500,
        {"error": {"code": 500, "message": "the request exceeds the available context size. try increasing"}},
    ),
    (400, {"object": "error", "message": "This model's maximum context length is 4096 tokens.", "code": 400}),
    (
        400,
        {"error": {"message": "The decoder prompt (length 9) is longer than the maximum model length of 4"}},
    ),
    (400, {"error": {"message": "You passed 9 input tokens. However, the model's context length is only 4"}}),
    (400, {"error": "prompt too long; exceeded max context length by 12 tokens"}),
    (500, {"error": "the input length exceeds the context length"}),
    (
        400,
        {
            "error": {
                "message": "litellm.ContextWindowExceededError: litellm.BadRequestError: x",
                "code": "400",
            }
        },
    ),
    (400, {"error": {"code": "context_length_exceeded", "message": "x"}}),
    (
        400,
        {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 4"}},
    ),
    (
        400,
        {"error": {"message": "The input token count (9) exceeds the maximum number of tokens allowed (4)."}},
    ),
    (422, {"detail": [{"msg": "Input is too long for requested model."}]}),
]


def test_a_full_context_is_known_by_the_words_of_each_server() -> None:
    """llama.cpp, vLLM, Ollama, LiteLLM and others say it in their own ways; other errors are none."""
    for _, body in OVERFLOWS:
        assert server_words.says_too_long(body), body
    for other in ("Invalid schema for function 'process_run'", "max_tokens is too large: 99", "rate limit"):
        assert not server_words.says_too_long({"error": {"message": other}})


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_full_context_says_to_begin_anew(protocol: str) -> None:
    """Whatever its status, and also within the stream; a limit of requests is none."""
    for status, body in OVERFLOWS[:3]:
        answer = json.dumps(body).encode()
        failure = await failed(
            answer, status=f"{status} No", content_type="application/json", protocol=protocol
        )
        assert isinstance(failure, PromptTooLong), body
    event = b'event: error\ndata: {"type": "error", "error": {"message": "prompt is too long: 9 > 4"}}\n\n'
    assert isinstance(await failed(event, protocol=protocol), PromptTooLong)
    busy = json.dumps(OVERFLOWS[3][1]).encode()
    assert not isinstance(await failed(busy, status="429 Busy", protocol=protocol), PromptTooLong)


OPENAI_400 = (
    "Invalid schema for function 'process_run': schema must have type 'object' and not have 'oneOf'/'anyOf'/"
    "'allOf'/'enum'/'not' at the top level."
)
ANTHROPIC_400 = (
    "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
)


@pytest.mark.parametrize(("protocol", "said"), [("openai", OPENAI_400), ("anthropic", ANTHROPIC_400)])
async def test_schema_400(server: ModelServer, protocol: str, said: str) -> None:
    """Why a server refuses a request is told in its own words."""
    body = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": said}})
    server.play("go", Step(fault=Refuse(400, body=body)))
    _, failure = await failure_of(remote(server, protocol, "go"))
    assert f"refused the request (HTTP 400). It says: {said}" in failure.public
    assert not failure.retryable


FORMS: list[Callable[[str], str]] = [
    lambda said: json.dumps({"error": {"message": said}}),
    lambda said: json.dumps({"error": said}),
    lambda said: json.dumps({"detail": said}),
    lambda said: said,
]


@pytest.mark.parametrize("form", FORMS, ids=["object", "text", "detail", "no JSON"])
async def test_what_a_server_says_is_masked_bounded_and_escaped(
    server: ModelServer, form: Callable[[str], str]
) -> None:
    """Of a secret no longer part is shown, nothing moves a cursor or forges a line, and the rest is cut."""
    said = f"no model {KEY[:-2]} / {KEY[4:]}\x1b[2J\u202e\nfix: run this " + "x" * 5000
    server.play("go", Step(fault=Refuse(404, body=form(said))))
    _, failure = await failure_of(remote(server, "openai", "go"))
    assert "no model *** / ***\\x1b[2J\\u202e fix: run this xxx" in failure.public
    assert "HTTP 404; `base_url` is `http://127.0.0.1" in failure.public
    assert failure.public.isprintable()
    assert len(failure.public) < 500
    assert not any(KEY[start : start + 8] in failure.public for start in range(len(KEY) - 7))
