"""What models are told of tools: within the written subset, which every model server takes."""

from typing import Any

import pytest

from tests.models.remote import asking, failure_of, remote
from tests.support.model_server import PROTOCOLS, ModelServer, Step
from tests.support.model_server.declared_tools import refusals
from tyrum_gateway.domain.model import Prompt, ToolSchema
from tyrum_gateway.models.rendering import plain
from tyrum_gateway.models.tool_names import ToolNames
from tyrum_gateway.models.tool_subset import KEYWORDS, problems
from tyrum_gateway.tools.process_run import DECLARATION
from tyrum_gateway.tools.run_arguments import SCHEMA

TOOLS = [DECLARATION]
"""Every tool that an agent can have, as it is told."""


def with_member(**member: Any) -> dict[str, Any]:
    """Make arguments with one member."""
    return {
        "type": "object",
        "properties": {"a": {"type": "string", "description": "A.", **member}},
        "required": [],
        "additionalProperties": False,
    }


FORMERLY = plain(SCHEMA) | {"oneOf": [{"required": ["argv"]}, {"required": ["shell"]}]}
"""As it was sent: the large services refused every message of an agent with tools."""
OUTSIDE: dict[str, dict[str, Any]] = {
    "one of two at the top": FORMERLY,
    "any of two": with_member() | {"anyOf": [{"required": ["a"]}]},
    "forms of names": with_member(type="object", additionalProperties={"type": "string"}, propertyNames={}),
    "each once": with_member(type="array", items={"type": "string"}, uniqueItems=True),
    "a list of nothing": with_member(type="array"),
    "several types": with_member(type=["string", "null"]),
    "no type": with_member(type=None),
    "counted far": with_member(type="array", items={"type": "string"}, maxItems=131_071),
    "a reference": with_member(**{"$ref": "#"}),
}
"""Declarations that some service refuses."""


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.tool)
def test_every_tool_stays_within_the_subset_that_all_services_take(tool: ToolSchema) -> None:
    """Neither our table nor what the services are known to refuse finds anything."""
    name = ToolNames([tool.tool]).name_of(tool.tool)
    parameters = plain(tool.parameters)
    assert list(problems(name, tool.description, parameters)) == []
    assert list(refusals(name, tool.description, parameters)) == []
    assert "Exactly one of `argv` and `shell`" in tool.description


@pytest.mark.parametrize("parameters", OUTSIDE.values(), ids=OUTSIDE)
def test_what_a_service_refuses_is_outside_the_subset(parameters: dict[str, Any]) -> None:
    """The table is no wider than what the services are known to take."""
    assert list(refusals("a", "A.", parameters))
    assert list(problems("a", "A.", parameters))


def test_the_subset_has_no_combinators() -> None:
    """No type may use a keyword that makes one schema of several."""
    every = frozenset().union(*KEYWORDS.values())
    assert not every & {
        "oneOf",
        "anyOf",
        "allOf",
        "not",
        "if",
        "$ref",
        "propertyNames",
        "uniqueItems",
        "pattern",
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_schema_with_one_of_at_the_top_is_refused_with_400(protocol: str) -> None:
    """The scripted server answers as the services do: no message of such an agent is taken."""
    server = ModelServer()
    async with server:
        server.play("go", Step(text=("ok",)))
        given = asking()
        tools = (ToolSchema("process.run", "Runs a command.", FORMERLY),)
        _, failure = await failure_of(
            remote(server, protocol, "go"), Prompt(given.instructions, "", given.messages, tools)
        )
        assert "HTTP 400" in failure.public
        assert any("at the top level" in problem for problem in server.problems)
        server.problems.clear()
