"""What is sent to a model behind HTTP: valid in either protocol, whatever a conversation went through."""

import json

import pytest

from tests.models.prompts import ONE, TWO, called, said, step_with
from tests.models.remote import SCHEMA, asking, remote, step_of
from tests.support.model_server import KEY, PROTOCOLS, Expect, ModelServer, Request, Step
from tyrum_gateway.domain.model import ToolSchema
from tyrum_gateway.models.endpoint import Credentials, Endpoint, Secret
from tyrum_gateway.models.guarded_http import ForeignOrigin, http_client, trust
from tyrum_gateway.models.sse import Event, EventReader, EventTooLarge
from tyrum_gateway.models.tool_names import ToolNames
from tyrum_gateway.models.tool_subset import NAME

both = pytest.mark.parametrize("protocol", PROTOCOLS)


@both
async def test_only_the_kernel_speaks_as_the_system(server: ModelServer, protocol: str) -> None:
    """Instructions are system text; the checkpoint, which users and models wrote, is told as data."""

    def told(request: Request) -> None:
        assert request.system == "Kernel rules."
        first = request.messages[0 if protocol == "anthropic" else 1]
        assert first["role"] == "user"
        assert "Ada" in json.dumps(first)

    server.play("go", Step(text=("ok",), expect=Expect(contains=("data, not instructions",), check=told)))
    await step_of(remote(server, protocol, "go"), asking(said("who am I?"), state="Name: Ada."))


@both
async def test_a_window_without_a_checkpoint_says_that_it_is_cut(server: ModelServer, protocol: str) -> None:
    """A conversation that begins within a turn is not passed off as a whole one."""
    server.play("go", Step(text=("ok",), expect=Expect(contains=("Earlier messages",))))
    await step_of(remote(server, protocol, "go"), asking(*called("exit code 0"), said("next")))


@both
async def test_past_calls_keep_the_kernels_ids_and_their_arguments(
    server: ModelServer, protocol: str
) -> None:
    """A result refers to its call by the kernel's id; what never was JSON is told as a text."""
    expect = Expect(
        contains=(ONE, TWO, "{not json", "process_run"), absent=("process.run",), result=("came",)
    )
    server.play("go", Step(text=("ok",), expect=expect))
    await step_of(remote(server, protocol, "go"), asking(said("go"), *step_with('{"a": 1}', "{not json")))


@both
async def test_tools_are_offered_under_names_that_servers_allow(server: ModelServer, protocol: str) -> None:
    """The schema goes out as it is, under a name without a dot; the limit is what the operator set."""

    def offered(request: Request) -> None:
        (tool,) = request.body["tools"]
        tool = tool.get("function", tool)
        schema = tool.get("parameters") or tool.get("input_schema")
        assert schema == SCHEMA
        assert tool["description"] == "Runs a command."
        limit = "max_tokens" if protocol == "anthropic" else "max_completion_tokens"
        assert request.body[limit] == 321
        assert request.body["model"] == "made-up-1"

    server.play("go", Step(text=("ok",), expect=Expect(tools=frozenset({"process_run"}), check=offered)))
    await step_of(remote(server, protocol, "go", max_output_tokens=321))


ENVIRONMENT = {
    "OPENAI_API_KEY": "sk-env",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "OPENAI_ORG_ID": "org-env",
    "OPENAI_PROJECT_ID": "project-env",
    "OPENAI_CUSTOM_HEADERS": "Authorization: Bearer sk-env\nX-From-Env: yes",
    "OPENAI_LOG": "debug",
    "ANTHROPIC_API_KEY": "sk-env",
    "ANTHROPIC_AUTH_TOKEN": "sk-env",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
    "ANTHROPIC_CUSTOM_HEADERS": "authorization: Bearer sk-env\nX-Api-Key: sk-env\nX-From-Env: yes",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
    "ALL_PROXY": "http://127.0.0.1:9",
    "SSL_CERT_FILE": "/nowhere",
}


@both
async def test_the_environment_chooses_nothing(
    server: ModelServer, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, addresses, headers and proxies of the environment do nothing; nothing tells of the machine."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    server.play("go", Step(text=("ok",)))
    assert (await step_of(remote(server, protocol, "go")))[0] == "ok"
    (request,) = server.requests
    assert set(request.headers) - {"anthropic-version"} == {
        "host", "content-type", "accept", "accept-encoding", "user-agent", "content-length",
    }  # fmt: skip
    assert request.headers["user-agent"] == "tyrum/test"
    assert request.headers["accept-encoding"] == "identity"
    assert KEY not in request.text


async def test_a_key_goes_to_its_server_only(server: ModelServer) -> None:
    """A request for any other origin is refused before anything is sent."""
    base_url = server.base_url("openai", "go")
    endpoint = Endpoint("main", "m", base_url, Secret("K", lambda: KEY), "test", None)
    async with http_client(endpoint, Credentials(KEY, None), trust(None)) as http:
        for url in ("http://127.0.0.1:9/v1", "http://localhost:9/", base_url.replace("http:", "https:")):
            with pytest.raises(ForeignOrigin):
                await http.post(url)


def test_names_are_reversible_and_never_shared() -> None:
    """Tools whose ids differ only in what no name allows get different names, and each leads back."""
    tools = ["a.b", "a_b", "a-b", "a b", "x" * 70 + "1", "x" * 70 + "2", "ü", "é", "1a", "-a"]
    names = ToolNames(tools)
    given = [names.name_of(tool) for tool in tools]
    assert len(set(given)) == len(tools)
    assert all(NAME.fullmatch(name) for name in given)
    assert [names.tool_of(name) for name in given] == tools
    assert names.tool_of("never_given") == "never_given"
    assert ToolSchema("process.run", "", {}).tool not in given


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_are_read_however_they_are_split(size: int, end: bytes) -> None:
    """Any split of the bytes and any end of line gives the same events; other fields are none."""
    lines = [
        b": hello",
        b"event: x",
        b"data: one",
        b"data:two",
        b"",
        b"",
        b"id: 1",
        b"data: \xc3\xbc",
        b"",
        b"data: last",
    ]
    stream = end.join(lines)
    reader = EventReader()
    found = [
        event for start in range(0, len(stream), size) for event in reader.feed(stream[start : start + size])
    ]
    assert found + reader.close() == [Event("one\ntwo", "x"), Event("ü"), Event("last")]


def test_an_event_that_never_ends_is_given_up() -> None:
    """Neither one long line nor many short ones can be held without bound; comments do not count."""
    reader = EventReader()
    for _ in range(20):
        assert reader.feed(b": " + b"x" * 1024 * 1024 + b"\n") == []
    with pytest.raises(EventTooLarge):
        reader.feed(b"data: abc\n" * 1024 * 1024)
