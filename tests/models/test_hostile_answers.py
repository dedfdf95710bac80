"""Answers that no server of good faith sends: each fails the step in our own words, and nothing else."""

import asyncio
import json

import pytest

from tests.models.prompts import CALL, said
from tests.models.remote import SECRET, asking, failure_of, remote, step_of
from tests.support.model_server import PROTOCOLS, Call, Garbage, ModelServer, Refuse, Step, Usage
from tyrum_gateway.domain.model import AssistantStep, PastCall, ToolOutput
from tyrum_gateway.domain.usage import Usage as Used
from tyrum_gateway.models import call_fragments, guarded_http
from tyrum_gateway.models.call_fragments import parse_object
from tyrum_gateway.models.chat_completions import ChatReader
from tyrum_gateway.models.failures import retry_after
from tyrum_gateway.models.sse import Event, EventReader
from tyrum_gateway.models.tool_names import ToolNames

both = pytest.mark.parametrize("protocol", PROTOCOLS)


@both
@pytest.mark.parametrize("charset", ["hex", "zlib", "rot13", "idna", "undefined"])
async def test_the_charset_of_an_error_chooses_no_codec(
    server: ModelServer, protocol: str, charset: str
) -> None:
    """An error is read as UTF-8: Python's other codecs raise, or inflate what was bounded."""
    refuse = Refuse(503, {"content-type": f"text/plain; charset={charset}"}, body="{busy")
    server.play("go", Step(fault=refuse))
    _, failure = await failure_of(remote(server, protocol, "go"))
    assert failure.retryable
    assert "HTTP 503" in failure.public


@both
async def test_an_empty_key_is_a_failure_that_names_the_secret(server: ModelServer, protocol: str) -> None:
    """A key file that was emptied fails the step before any request, with its secret's name."""
    server.play("go", Step())
    _, failure = await failure_of(remote(server, protocol, "go", key=""))
    assert not failure.retryable
    assert f"`{SECRET}`" in failure.public
    assert server.calls("go") == 0


@both
@pytest.mark.parametrize(
    "arguments",
    ['{"a":"\\ud800"}', '{"\\udfff":1}', '{"a":1e999}', '{"a":' + "[" * 100 + "]" * 100 + "}"],
    ids=["half a character", "half a character as key", "infinity", "deep"],
)
async def test_a_call_that_json_cannot_carry_back_does_not_end_its_conversation(
    server: ModelServer, protocol: str, arguments: str
) -> None:
    """What a model wrote into a past call is told as text where no server could be sent it as an object."""
    past = AssistantStep("", (PastCall(CALL, "process.run", arguments),))
    server.play("go", Step(text=("ok",)))
    given = asking(said("list"), past, ToolOutput(CALL, "process.run", "rejected"), said("again"))
    text, _ = await step_of(remote(server, protocol, "go"), given)
    assert text == "ok"
    (request,) = server.requests
    assert "not_json" in str(request.body)


@pytest.mark.parametrize(
    "date",
    [
        "Mon, 01 Jan 2024 00:00:00 +99999999999999999",
        "Mon, 99999999999999999999999 Jan 2024 00:00:00 GMT",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
    ],
)
def test_a_date_that_no_calendar_holds_asks_for_nothing(date: str) -> None:
    """`retry-after` with numbers beyond any calendar is no wish, and no error either."""
    assert retry_after({"retry-after": date}) is None


@both
@pytest.mark.parametrize("held", [False, True], ids=["cut", "held"])
async def test_a_status_counts_whatever_becomes_of_its_body(
    server: ModelServer, protocol: str, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error whose body breaks off, or never ends, is the error that its status says, and soon."""
    monkeypatch.setattr(guarded_http, "ERROR_SECONDS", 0.05 if held else 30.0)

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 Scripted\r\ncontent-length: 1000\r\n\r\n{")
        if held:
            await reader.read()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listening:
        base_url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        _, failure = await failure_of(remote(server, protocol, "go", base_url=base_url))
    assert f"refused the key in the secret `{SECRET}` (HTTP 401)" in failure.public
    assert not failure.retryable


@both
async def test_what_was_used_is_told_also_when_nonsense_follows(server: ModelServer, protocol: str) -> None:
    """Tokens that a server told before it sent what is none of the protocol stay told."""
    server.play("go", Step(text=("Half",), fault=Garbage(1), usage=Usage(11, 7)))
    _, failure = await failure_of(remote(server, protocol, "go"))
    assert failure.usage == (Used(11, None) if protocol == "anthropic" else Used(None, None))


@both
async def test_more_tokens_than_there_are_were_not_told(server: ModelServer, protocol: str) -> None:
    """A number that sums could not carry is no usage."""
    server.play("go", Step(text=("ok",), usage=Usage(2**53, 7)))
    _, end = await step_of(remote(server, protocol, "go"))
    assert end.usage == Used(None, 7)


@both
async def test_a_character_may_come_in_halves(server: ModelServer, protocol: str) -> None:
    """Halves in two deltas are one character, in text and arguments; text keeps a half without the other."""
    arguments = '{"argv": ["echo", "\ud83d\ude00"]}'
    server.play(
        "go",
        Step(text=("a\ud83d", "\ude00b", "c\ud83d"), calls=(Call("process_run", arguments),), fragments=40),
    )
    text, end = await step_of(remote(server, protocol, "go"))
    assert text == "a\N{GRINNING FACE}bc\ud83d"
    assert json.loads(end.calls[0].arguments) == {"argv": ["echo", "\N{GRINNING FACE}"]}


@both
@pytest.mark.parametrize("half", ["\ud83d", "\ude00\ud83d"], ids=["one", "swapped"])
async def test_half_a_character_is_no_argument(server: ModelServer, protocol: str, half: str) -> None:
    """What would have to stand in its place, such as a `?`, would be run though nobody wrote it."""
    server.play("go", Step(calls=(Call("process_run", f'{{"argv": ["rm", "{half}"]}}'),)))
    _, failure = await failure_of(remote(server, protocol, "go"))
    assert "no JSON object; nothing was executed" in failure.public


def chunk(name: str, arguments: str) -> str:
    """Write a piece of the first call as servers do that repeat its name and give no id."""
    piece = {"index": 0, "function": {"name": name, "arguments": arguments}}
    return json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]})


@pytest.mark.parametrize("piece", ["x", '}\\"', "[]"])
def test_a_repeated_name_makes_no_quadratic_work(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call in many pieces, each with its name, is parsed where it may be whole and not at every piece."""
    parsed: list[str] = []

    def counted(text: str) -> dict[str, object] | None:
        parsed.append(text)
        return parse_object(text)

    monkeypatch.setattr(call_fragments, "parse_object", counted)
    reader = ChatReader()
    reader.feed(chunk("process_run", '{"a":"'))
    for _ in range(1000):
        reader.feed(chunk("process_run", piece))
    reader.feed(chunk("process_run", '"}'))
    reader.feed(chunk("process_run", " "))
    reader.feed('{"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}')
    reader.feed("[DONE]")
    assert len(parsed) == 1
    first, second = reader.end(ToolNames(["process.run"])).calls
    assert json.loads(first.arguments) == {"a": json.loads(f'"{piece * 1000}"')}
    assert second.arguments == "{}"


def test_a_byte_order_mark_costs_no_event() -> None:
    """A stream may begin with one, whole or in pieces; anywhere else it is text."""
    mark = b"\xef\xbb\xbf"
    reader = EventReader()
    assert [*reader.feed(mark[:1]), *reader.feed(mark[1:] + b"data: a\n\n")] == [Event("a")]
    assert reader.feed(mark + b"data: b\n\ndata: c\n\n") == [Event("c")]
