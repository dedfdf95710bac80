"""Transcripts with holes: each renders into a conversation that strict servers of both protocols take."""

import json
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.prompts import ONE, TWO, called, said, step_with
from tests.models.remote import asking, remote, step_of
from tests.support.model_server import PROTOCOLS, ModelServer, Request, Step, chat_wire, messages_wire
from tyrum_gateway.domain.ids import CallId
from tyrum_gateway.domain.model import AssistantStep, Message, PastCall, Prompt, ToolOutput, UserText
from tyrum_gateway.models import anthropic_messages, chat_completions
from tyrum_gateway.models.tool_names import ToolNames

both = pytest.mark.parametrize("protocol", PROTOCOLS)
STRICT = {"openai": chat_wire.problems, "anthropic": messages_wire.problems}
ANY = CallId("call_")
CALLS = tuple(PastCall(ANY, tool, text) for tool, text in (("process.run", "{}"), ("gone", "{not json")))
MESSAGES = st.one_of(
    st.builds(UserText, st.sampled_from(["one", "  ", "", "\u00fc"])),
    st.builds(
        AssistantStep,
        st.sampled_from(["", "Said.", " \n"]),
        st.lists(st.sampled_from(CALLS), max_size=3).map(tuple),
    ),
    st.builds(
        ToolOutput,
        st.integers(0, 9).map(lambda number: CallId(f"call_{number:026}")),
        st.just("process.run"),
        st.sampled_from(["", "came back"]),
    ),
)


def identified(messages: list[Message]) -> tuple[Message, ...]:
    """Give each call an id of its own, as the kernel does; results are for any of them, or for none."""
    numbers = count()
    return tuple(
        replace(
            message,
            calls=tuple(replace(call, call_id=CallId(f"call_{next(numbers):026}")) for call in message.calls),
        )
        if isinstance(message, AssistantStep)
        else message
        for message in messages
    )


PAIR = tuple(PastCall(call_id, "process.run", "{}") for call_id in (ONE, TWO))
CONVERSATIONS: dict[str, tuple[Message, ...]] = {
    "one question": (said("hello"),),
    "a turn that failed before it said anything": (said("one"), said("two")),
    "a text that broke off": (said("one"), AssistantStep("Half a"), said("two")),
    "a window that begins within a turn": (*called("exit code 0", "Running."), said("next")),
    "a window that begins with text": (AssistantStep("Done."), said("next")),
    "two calls and their results": (said("go"), *step_with('{"a": 1}', '{"b": 2}')),
    "two steps of one turn": (said("go"), *step_with("{}"), *step_with("{}", text="Once more.")),
    "arguments that never were JSON": (said("go"), *step_with("{not json", '"text"')),
    "no arguments": (said("go"), *step_with("")),
    "a tool that never was": (said("go"), *step_with("{}", tool="no such tool: ümlaut" * 9)),
    "blank texts": (said("  \n"), AssistantStep(" "), said("")),
    "two turns that failed in a row": (said("one"), said("two"), said("three")),
    "a turn that was cancelled after a result": (said("one"), *called("exit code 0"), said("two")),
    "calls left without results": (said("one"), AssistantStep("I will.", PAIR), said("two")),
    "a result of two": (
        said("one"),
        AssistantStep("", PAIR),
        ToolOutput(TWO, "process.run", "b"),
        said("x"),
    ),
    "a result that came after the next message": (
        said("one"),
        AssistantStep("", PAIR[:1]),
        said("two"),
        ToolOutput(ONE, "process.run", "late"),
    ),
    "results in another order, and one of them twice": (
        said("one"),
        AssistantStep("", PAIR),
        *(ToolOutput(call_id, "process.run", "x") for call_id in (TWO, ONE, ONE)),
    ),
    "a result whose call is not shown": (ToolOutput(ONE, "process.run", "x"), said("next")),
    "nothing but an answer": (AssistantStep("Done."),),
    "an empty result": (
        said("go"),
        AssistantStep("", (PastCall(ONE, "process.run", "{}"),)),
        ToolOutput(ONE, "process.run", ""),
    ),
}


@pytest.mark.parametrize("tools", [True, False], ids=["tools", "no tools"])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_every_conversation_is_a_valid_request(name: str, tools: bool) -> None:
    """A server that is strict about roles, pairs, names and empty texts takes every conversation."""
    prompt = asking(*CONVERSATIONS[name], state="They said their name is Ada." if tools else "")
    if not tools:
        prompt = replace(prompt, tools=())
    for protocol, problems in STRICT.items():
        assert list(problems(rendered(protocol, prompt))) == []


@both
@given(messages=st.lists(MESSAGES, max_size=12).map(identified), state=st.sampled_from(["", "Name: Ada."]))
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_any_transcript_with_holes_is_a_valid_conversation(
    protocol: str, messages: tuple[Message, ...], state: str
) -> None:
    """Whatever is missing, twice, late or out of order: roles alternate, each call has its one result, and
    what users and results said is still there.
    """
    prompt = replace(asking(said("x"), state=state), messages=messages)
    request = rendered(protocol, prompt)
    assert list(STRICT[protocol](request)) == []
    for message in messages:
        match message:
            case UserText(text=text) if text.strip():
                assert text in request.text
            case ToolOutput(content=content):
                assert content in request.text
            case _:
                pass


def rendered(protocol: str, prompt: Prompt) -> Request:
    """Render a prompt as it is sent."""
    names = ToolNames(schema.tool for schema in prompt.tools)
    if protocol == "openai":
        body = chat_completions.render(prompt, names, model="m", max_output_tokens=None)
    else:
        body = anthropic_messages.render(prompt, names, model="m", max_output_tokens=9)
    headers = {"content-type": "application/json", "anthropic-version": "1"}
    return Request("go", protocol, headers, json.loads(json.dumps(body)))


async def test_two_users_in_a_row(server: ModelServer) -> None:
    """After a turn that failed without text, what it was asked is not run together with the next request."""
    server.play("go", Step(text=("ok",)))
    await step_of(remote(server, "openai", "go"), asking(said("delete it"), said("hello")))
    (request,) = server.requests
    assert request.roles == ["system", "user", "assistant", "user"]
    assert "without an answer" in request.messages[2]["content"]
    assert request.messages[3]["content"] == "hello"
