"""Models behind the scripted model server."""

from pathlib import Path

from tests.models.prompts import said
from tests.support.model_server import KEY, ModelServer
from tyrum_gateway.domain.errors import ModelUnavailable
from tyrum_gateway.domain.model import Message, Model, Prompt, StepEnd, TextDelta, ToolSchema
from tyrum_gateway.models.catalog import Anthropic, OpenAi, build_model
from tyrum_gateway.models.endpoint import Endpoint, Proxy, Secret

SECRET = "MODEL_KEY"
LOGIN = "PROXY_LOGIN"
ARGV = {"type": "array", "items": {"type": "string"}, "description": "Program and arguments."}
SCHEMA = {"type": "object", "properties": {"argv": ARGV}, "required": [], "additionalProperties": False}


def remote(
    server: ModelServer,
    protocol: str,
    scenario: str,
    *,
    key: str = KEY,
    base_url: str = "",
    max_output_tokens: int | None = None,
    ca_file: Path | None = None,
    proxy: str | None = None,
    login: str | None = None,
) -> Model:
    """Build a model that asks a scenario."""
    asked = endpoint(
        base_url or server.base_url(protocol, scenario),
        key=key,
        max_output_tokens=max_output_tokens,
        ca_file=ca_file,
        proxy=proxy,
        login=login,
    )
    return build_model(OpenAi(asked) if protocol == "openai" else Anthropic(asked))


def endpoint(
    base_url: str,
    *,
    key: str = KEY,
    max_output_tokens: int | None = None,
    ca_file: Path | None = None,
    proxy: str | None = None,
    login: str | None = None,
) -> Endpoint:
    """Describe where a model is reached."""
    shown = None if login is None else Secret(LOGIN, lambda: login)
    return Endpoint(
        name="main",
        model="made-up-1",
        base_url=base_url,
        key=Secret(SECRET, lambda: key),
        agent="tyrum/test",
        max_output_tokens=max_output_tokens,
        ca_file=ca_file,
        proxy=None if proxy is None else Proxy(proxy, shown),
    )


def asking(*messages: Message, state: str = "") -> Prompt:
    """Make a prompt of a user who wants something run."""
    tools = (ToolSchema("process.run", "Runs a command.", SCHEMA),)
    return Prompt("Kernel rules.", state, messages or (said("list"),), tools)


async def step_of(model: Model, given: Prompt | None = None) -> tuple[str, StepEnd]:
    """Take one step; return its text and its end."""
    text, ends = "", list[StepEnd]()
    async for event in model.generate(given or asking()):
        match event:
            case TextDelta(new):
                text += new
            case StepEnd():
                ends.append(event)
    (end,) = ends
    return text, end


async def failure_of(model: Model, given: Prompt | None = None) -> tuple[str, ModelUnavailable]:
    """Take one step that fails; return the text that came before, and the failure."""
    text = ""
    try:
        async for event in model.generate(given or asking()):
            assert isinstance(event, TextDelta), f"a step came: {event}"
            text += event.text
    except ModelUnavailable as failure:
        return text, failure
    raise AssertionError("the step ended without an end and without a failure")
