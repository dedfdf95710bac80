"""Malformed input: whatever a client sends, the answer is a registered error of the called service."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from grpc import StatusCode

from tests.support import configs
from tests.support.client import Client, connected
from tests.support.gateway import RunningGateway, serving
from tests.support.served import DEADLINE, Rpc, call, infos, rpcs, symbols
from tyrum.error.v1 import error_pb2

REQUESTS = 200
OVERSIZE = 4 * 1024 * 1024 + 1
LIVE_SECONDS = 0.5
"""How long a stream that was accepted may stay silent before it counts as accepted."""

REASONS = {name.removeprefix("ERROR_REASON_") for name in error_pb2.ErrorReason.DESCRIPTOR.values_by_name} - {
    "UNSPECIFIED"
}
LEAKS = re.compile(
    r"Traceback|\b\w*(?:Error|Exception)\b|\.py\b|site-packages|tyrum_gateway|/(?:tmp|home|root)/"
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One gateway for all requests of this file."""
    directory = tmp_path_factory.mktemp("malformed")
    with serving(directory, configs.write(directory)) as running:
        yield running


class Fuzz:
    """Seeded requests for one RPC."""

    def __init__(self, rpc: Rpc, plausible: dict[str, Any]) -> None:
        """Prepare.

        Args:
            rpc: The method.
            plausible: Valid values by field name; each message is valid but for at least one field.
        """
        self._rpc = rpc
        self._plausible = plausible
        self._random = random.Random(f"29 {rpc}")
        ids = [value for value in plausible.values() if isinstance(value, str) and len(value) > 26]
        alien = [f"{prefix}_{'0' * 26}" for prefix in ("conv", "turn", "appr", "bind", "prin", "inst", "x")]
        self._texts = [
            *ids,
            *alien,
            *(value.upper() for value in ids),
            *(value + "0" for value in ids),
            *(value[:-1] for value in ids),
            *(f" {value}" for value in ids),
            f"conv_8{'0' * 25}",
            f"conv_{'０' * 26}",
            "",
            " ",
            "\0",
            "a\0b",
            "a\nb",
            "%s%n{0}{}",
            "' OR 1=1 --",
            "../../../etc/passwd",
            "\ud7ff\ue000\U0010ffff\u202e",
            "🦊" * 5000,
            "local",
            "x" * 65,
            "x" * 129,
            "x" * 1025,
            "x" * (256 * 1024 + 1),
            "é" * (600 * 1024),
            "sha256:" + "0" * 64,
        ]

    def decodable(self) -> bytes:
        """A message of the method whose fields hold nonsense."""
        message = self._rpc.blank()
        self._fill(message)
        # A field number that no message of this project uses.
        unknown = b"\xfa\xff\x3f\x03abc" if self._random.random() < 0.3 else b""
        return message.SerializeToString() + unknown

    def _fill(self, message: Message) -> None:
        """Put nonsense into at least one field; a message in a message gets some of its own."""
        fields = [field for field in message.DESCRIPTOR.fields if field.message_type is None]
        nonsense = {field.name for field in fields if self._random.random() < 0.3}
        if fields:
            nonsense.add(self._random.choice(fields).name)
        for field in fields:
            if field.name in nonsense and field.is_repeated:
                getattr(message, field.name).extend(
                    self._nonsense(field) for _ in range(self._random.randint(0, 3))
                )
            elif field.name in nonsense:
                setattr(message, field.name, self._nonsense(field))
            elif field.name in self._plausible:
                setattr(message, field.name, self._plausible[field.name])
        for field in message.DESCRIPTOR.fields:
            if field.message_type is not None and (not fields or self._random.random() < 0.3):
                inner: Any = getattr(message, field.name)
                if field.is_repeated:
                    inner = inner.add()
                inner.SetInParent()
                self._fill(inner)

    def undecodable(self) -> bytes:
        """Bytes that are no message of the method."""
        while True:
            kind = self._random.randrange(4)
            if kind == 0:
                raw = self._random.randbytes(self._random.randint(1, 300))
            elif kind == 1:  # cut off within a length-delimited field
                raw = b"\x0a\xff\xff\x03" + self._random.randbytes(self._random.randint(0, 40))
            elif kind == 2:  # groups that never end, one within the other
                raw = b"\x0b" * self._random.randint(1, 5000)
            else:  # text that is not UTF-8, or tag zero where there is no text
                raw = b"\x0a\x02\xc3\x28" if self._random.random() < 0.5 else b"\x00\x01"
            try:
                self._rpc.blank().ParseFromString(raw)
            except DecodeError:
                return raw

    def _nonsense(self, field: Any) -> Any:
        low, high = {
            FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
            FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
            FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
            FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
            FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
        }.get(field.cpp_type, (0, 0))
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_STRING:
                text = self._random.choice(self._texts)
                return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
            case FieldDescriptor.CPPTYPE_BOOL:
                return self._random.random() < 0.5
            case _:
                edges = (low, high, 0, 1, 2, 3, 99, 201, 501, self._random.randint(low, high))
                return self._random.choice([edge for edge in edges if low <= edge <= high])


async def each(items: list[bytes], ask: Callable[[bytes], Awaitable[str]]) -> Counter[str]:
    """Ask about all items, 16 at a time; count the answers."""
    slots = asyncio.Semaphore(16)

    async def one(item: bytes) -> str:
        async with slots:
            return await ask(item)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(item)) for item in items]
    return Counter(task.result() for task in tasks)


async def plausible_values(client: Client) -> dict[str, Any]:
    """Values for which there is something, so that most nonsense is almost right."""
    accepted, events = await client.turn("count")
    asked = (await anext(client.send("ask"))).accepted
    question = (await client.until(asked.conversation_id, "approval_requested"))[-1]
    started = next(event.tool_call_started for event in events if event.HasField("tool_call_started"))
    return {
        "conversation_id": accepted.conversation_id,
        "turn_id": asked.turn_id,
        "approval_id": question.approval_requested.approval_id,
        "binding": started.binding_id,
        "operation": started.operation_id,
        "request_id": "fuzz",
        "text": "anything",
        "answer": 1,
        "digest": "sha256:" + "0" * 64,
        "name": "local",
        "page_size": 5,
        "after_sequence": 1,
    }


async def outcome(
    client: Client, rpc: Rpc, raw: bytes, *, decodable: bool, silence: float = LIVE_SECONDS
) -> str:
    """Send one request; name the code and reason of the answer after checking its form."""
    live = decodable and rpc.own and rpc.server_streaming
    patience = silence if live else DEADLINE
    error = await refusal(call(client.channel, rpc, raw, client.metadata, timeout=patience))
    if error is None:
        return "OK"
    if live and error.code() is StatusCode.DEADLINE_EXCEEDED:
        return "OK live"
    shown = f"{rpc} {raw[:60]!r} {error.code()} {error.details()}"
    assert error.code() not in {StatusCode.INTERNAL, StatusCode.UNKNOWN}, shown
    assert not LEAKS.search(error.details() or ""), shown
    bare = len(raw) >= OVERSIZE and error.code() is StatusCode.RESOURCE_EXHAUSTED
    if bare or not rpc.own:
        return error.code().name
    (info,) = infos(error)
    assert info.domain == rpc.package, shown
    assert info.reason in REASONS, shown
    assert not LEAKS.search(str(info)), shown
    return f"{error.code().name} {info.reason}"


async def refusal(answer: Awaitable[object]) -> grpc.aio.AioRpcError | None:
    """Wait for an answer; return the error that came instead."""
    try:
        await answer
    except grpc.aio.AioRpcError as error:
        return error
    return None


async def healthy(client: Client, gateway: RunningGateway) -> None:
    """The gateway is the same process, works through a turn, and logged no failure of an RPC."""
    _, events = await client.turn("anything")
    assert events[-1].turn_finished.state, "a turn ends"
    assert gateway.process is not None
    assert gateway.process.poll() is None
    assert "rpc_failed" not in gateway.log


@pytest.mark.timeout(300)
async def test_every_rpc_answers_nonsense_with_registered_errors(gateway: RunningGateway) -> None:
    """200 requests per RPC, half decodable, some oversize: no INTERNAL, no UNKNOWN, one ErrorInfo each."""
    async with connected(gateway) as client:
        plausible = await plausible_values(client)
        served = await rpcs(client.channel, client.metadata)
        own = [rpc for rpc in served if rpc.own]
        assert {rpc.service.rpartition(".")[2] for rpc in own} == {
            "ApprovalService",
            "AuditService",
            "CatalogService",
            "ChatService",
            "IdentityService",
            "PolicyService",
            "RunService",
        }
        for rpc in served:
            fuzz = Fuzz(rpc, plausible)
            undecodable = [fuzz.undecodable() for _ in range(REQUESTS // 2)]
            decodable = [fuzz.decodable() for _ in range(REQUESTS // 2)]
            oversize = [b"\x0a\x81\x80\x80\x02" + b"x" * OVERSIZE, b"\xff" * OVERSIZE]
            seen = await each(decodable, partial(outcome, client, rpc, decodable=True))
            broken = await each([*undecodable, *oversize], partial(outcome, client, rpc, decodable=False))
            assert seen.total() == REQUESTS // 2
            if rpc.own:
                expected = {"INVALID_ARGUMENT FIELD_INVALID": 100, "RESOURCE_EXHAUSTED": 2}
                assert broken == expected, str(rpc)
                if rpc.blank().DESCRIPTOR.fields:
                    if seen["INVALID_ARGUMENT FIELD_INVALID"] <= 10 and seen["OK live"]:
                        # On a busy machine refusals may have been slower than what is live is silent.
                        patient = partial(outcome, client, rpc, decodable=True, silence=10 * LIVE_SECONDS)
                        seen = await each(decodable, patient)
                    assert seen["INVALID_ARGUMENT FIELD_INVALID"] > 10, (rpc, seen)
        await healthy(client, gateway)


async def test_methods_that_do_not_exist_are_unimplemented(gateway: RunningGateway) -> None:
    """A path that nobody serves is answered in the form of every other error."""
    async with connected(gateway) as client:
        for path in ("/tyrum.chat.v1.ChatService/Nothing", "/tyrum.none.v1.NoService/Nothing"):
            call_of: Any = client.channel.unary_unary(path)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call_of(b"\xff", metadata=client.metadata, timeout=60)
            assert caught.value.code() is StatusCode.UNIMPLEMENTED
            (info,) = infos(caught.value)
            assert info.reason == "CAPABILITY_NOT_DECLARED"
            assert info.domain == path[1:].rpartition("/")[0].rpartition(".")[0]


async def test_health_and_reflection_survive_strange_questions(gateway: RunningGateway) -> None:
    """Unknown services, symbols and files are answered, by code or in the message, and never as a failure."""
    async with connected(gateway) as client:
        for rpc in await rpcs(client.channel, client.metadata):
            if rpc.own:
                continue
            for text in ("nothing", "x" * 100_000, "\0", "tyrum.chat.v1.ChatService.", "🦊"):
                for field in rpc.blank().DESCRIPTOR.fields:
                    message = rpc.blank()
                    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
                        setattr(message, field.name, text)
                    await outcome(client, rpc, message.SerializeToString(), decodable=True)
        await healthy(client, gateway)


async def test_reflection_resolves_methods_and_what_errors_carry(gateway: RunningGateway) -> None:
    """Each method is found by its full name, with the file of its messages; so are types of google.rpc."""
    async with connected(gateway) as client:
        served = await rpcs(client.channel, client.metadata)
        methods = {f"{rpc.service}.{rpc.method}": rpc for rpc in served}
        errors = ["google.rpc.Status", "google.rpc.ErrorInfo"]
        absent = ["tyrum.chat.v1.ChatService.Nothing", "tyrum.chat.v1.NoService.SendMessage"]
        found = await symbols(client.channel, client.metadata, [*methods, *errors, *absent])
    for name, rpc in methods.items():
        messages = {f"{file.package}.{message.name}" for file in found[name] for message in file.message_type}
        assert {rpc.request.full_name, rpc.response.full_name} <= messages, name
    assert all(found[name][0].package == "google.rpc" for name in errors)
    assert not any(found[name] for name in absent)
