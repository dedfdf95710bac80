"""Nothing that a model or a chat client says selects: 500 hostile argument sets through gateway and store."""

import itertools
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor

from tests.support import configs
from tests.support.client import Client, connected, finished
from tests.support.gateway import RunningGateway, serving
from tests.support.served import call, rpcs
from tests.tools.test_hostile_arguments import SELECTORS, hostile
from tyrum.chat.v1 import chat_pb2, event_pb2
from tyrum_gateway.domain.principal import Role
from tyrum_gateway.rpc.authorization import TABLE, AnyOf
from tyrum_gateway.tools.run_arguments import SCHEMA

PER_STEP = 32
"""Calls in one step of the model."""

RULES = """\
      - id: "true"
        decision: allow
        author: the test
        match: {tool: process.run, program: /usr/bin/true, stdin: true}
"""
OTHER = """\
  other:
    kind: isolation
    command: [tyrum-provider-local-spawn]
    config: {run_as: gateway_user, max_concurrent: 3}
    trust: operator_installed
    deployment: local_process
"""
SELECTION = (
    "kind, provider, provider_id, profile, contract_major, contract_minor, contract_digest, "
    "implementation_version, artifact_digest, config_digest"
)
"""What a stored binding says of the selection."""

CHAT_FIELDS = {
    "conversation_id",
    "request_id",
    "text",
    "after_sequence",
    "durable_only",
    "turn_id",
    "reason",
    "page_size",
    "page_token",
    # of lists of runs
    "run_id",
    "filter",
    "principal_id",
    "state",
    "since",
    "until",
    "seconds",
    "nanos",
}
"""Everything that a client with the role chat can say."""


def hostile_sets() -> list[str]:
    """More than 500 argument texts; those larger than a step may be are tried with the tool alone."""
    sets = [text for text in hostile() if len(text) < 50_000]
    places = ("other", ".", "../state", "/", "other/../..", "../../providers/other", "~")
    variables = ({"PROVIDER": "other"}, {"PATH": "/tmp", "profile": "other"}, {"TYRUM_PROFILE": "x"})
    sets += [
        json.dumps({"argv": ["true"], "cwd": cwd, "env": env})
        for cwd, env in itertools.product(places, variables)
    ]
    return sets


def script(sets: list[str]) -> dict[str, Any]:
    """Let the model propose every set, several in a step."""
    steps: list[dict[str, Any]] = [
        {"calls": [{"tool": "process.run", "arguments": text} for text in sets[start : start + PER_STEP]]}
        for start in range(0, len(sets), PER_STEP)
    ]
    plain = [{"calls": [{"tool": "process.run", "arguments": {"argv": ["true"]}}]}, {"deltas": ["Done."]}]
    return {
        "version": 1,
        "scenarios": [
            {"user": "hostile", "steps": [*steps, {"deltas": ["Done."]}]},
            {"user": "plain", "steps": plain},
            {"user": {"prefix": ""}, "steps": [{"deltas": ["Said."], "expect": {"tools": ["process.run"]}}]},
        ],
    }


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with two providers, of which the operator selected one."""
    directory = tmp_path_factory.mktemp("selection")
    config = configs.write(directory, script=json.dumps(script(hostile_sets())), rules=RULES)
    written = config.read_text(encoding="utf-8")
    config.write_text(written.replace("profiles:\n  iso", f"{OTHER}profiles:\n  iso"), encoding="utf-8")
    with serving(directory, config) as running:
        (running.state_dir / "workspaces/default/other").mkdir()
        yield running


def selections(gateway: RunningGateway) -> list[tuple[Any, ...]]:
    """The selection part of every stored binding."""
    connection = sqlite3.connect(gateway.state_dir / "tyrum.sqlite3")
    try:
        return connection.execute("SELECT " + SELECTION + " FROM bindings").fetchall()  # noqa: S608
    finally:
        connection.close()


async def approving(client: Client, text: str) -> list[event_pb2.Event]:
    """Send a message and approve whatever is asked."""
    stream, events = client.send(text), list[event_pb2.Event]()
    async for item in stream:
        if item.HasField("event"):
            events.append(item.event)
            if item.event.HasField("approval_requested"):
                await client.resolve(item.event.approval_requested.approval_id, approve=True)
    return events


async def test_500_hostile_argument_sets_leave_every_stored_selection_byte_identical(
    gateway: RunningGateway,
) -> None:
    """Whatever the arguments say, what is bound is what the operator selected."""
    sets = hostile_sets()
    assert len(sets) >= 500
    async with connected(gateway) as client:
        await client.turn("plain")
        before = selections(gateway)
        events = await approving(client, "hostile")
    assert events[-1].turn_finished.state == event_pb2.TURN_STATE_COMPLETED, events[-1].turn_finished.reason
    calls = finished(events)
    assert len(calls) == len(sets)
    ran = sum(call.state == event_pb2.CALL_STATE_SUCCEEDED for call in calls)
    after = selections(gateway)
    assert set(after) == {before[0]}
    assert before[0][1] == "local"
    assert 20 <= ran <= len(after) - len(before) <= len(sets) / 2


async def test_unknown_fields_and_metadata_of_a_client_select_nothing(gateway: RunningGateway) -> None:
    """A field that the contract does not have, and a header that nobody reads, change no binding."""
    async with connected(gateway) as client:
        await client.turn("plain")
        before = selections(gateway)
        (rpc,) = [rpc for rpc in await rpcs(client.channel, client.metadata) if rpc.method == "SendMessage"]
        message = chat_pb2.SendMessageRequest(request_id="unknown-fields", text="plain")
        raw = message.SerializeToString() + b"\x22\x05other\x2a\x05other\x7a\x05other"
        headers = tuple((f"x-{name.replace('_', '-')}", "other") for name in SELECTORS)
        (first,) = await call(client.channel, rpc, raw, (*client.metadata, *headers))
        accepted = chat_pb2.SendMessageResponse.FromString(first).items[0].accepted
        events = await client.until(accepted.conversation_id, "turn_finished")
    assert finished(events)[0].state == event_pb2.CALL_STATE_SUCCEEDED
    after = selections(gateway)
    assert len(after) == len(before) + 1
    assert set(after) == set(before)


async def test_no_request_of_a_chat_client_has_a_field_that_selects(gateway: RunningGateway) -> None:
    """The fields of all requests that the role chat may send are known, and none names a provider."""
    async with connected(gateway) as client:
        served = await rpcs(client.channel, client.metadata)
    names = set[str]()
    for rpc in served:
        access = TABLE[rpc.service, rpc.method]
        if rpc.own and isinstance(access, AnyOf) and Role.CHAT in access.roles:
            names |= fields(rpc.request)
    assert names == CHAT_FIELDS
    assert not names & set(SELECTORS)


def fields(message: Descriptor) -> set[str]:
    """Names of all fields, also of messages within."""
    found = set[str]()
    for field in message.fields:
        found.add(field.name)
        if field.message_type is not None:
            found |= fields(field.message_type)
    return found


async def test_the_schema_that_models_are_shown_is_closed(gateway: RunningGateway) -> None:
    """The only tool is process.run, and no object of its schema takes a member that it does not list."""
    async with connected(gateway) as client:
        _, events = await client.turn("which tools")
    assert events[-1].turn_finished.state == event_pb2.TURN_STATE_COMPLETED, "the script expects the tools"

    def closed(schema: Any) -> None:
        if isinstance(schema, dict):
            if schema.get("type") == "object":
                rest = schema["additionalProperties"]
                assert rest is False or rest["type"] == "string"
                assert not set(schema.get("properties", ())) & set(SELECTORS)
            for item in schema.values():
                closed(item)

    closed(dict(SCHEMA))
