"""Malformed input to a provider: whatever a host sends to local_spawn, the answer is a registered error."""

import asyncio
import random
from pathlib import Path
from typing import Any

import grpc.aio
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from grpc import StatusCode

from tests.local_spawn.driver import Provider
from tests.support.served import Rpc, call, infos
from tyrum.error.v1 import error_pb2
from tyrum.isolation.v1 import isolation_pb2
from tyrum.provider.v1 import control_pb2

REQUESTS = 200
AT_ONCE = 8
OVERSIZE = 4 * 1024 * 1024 + 1
DEADLINE = 30.0
ENDING = {"Drain", "Shutdown"}
"""Calls that a decodable request may well mean: they would end the provider under test."""

REASONS = {name.removeprefix("ERROR_REASON_") for name in error_pb2.ErrorReason.DESCRIPTOR.values_by_name}
TEXTS = ("", "\0", "x", "op_" + "0" * 26, "proc_" + "0" * 26, "../../etc", "x" * 70_000, "🦊" * 300, "a\nb")
NUMBERS = (0, 1, 3, 2**31 - 1, 2**32 - 1, 2**63 - 1, -1, -(2**31), -(2**63))
RPCS = [
    Rpc.of(method)
    for service in (
        control_pb2.DESCRIPTOR.services_by_name["ProviderControlService"],
        isolation_pb2.DESCRIPTOR.services_by_name["IsolationService"],
    )
    for method in service.methods
]


def scramble(message: Any, dice: random.Random, depth: int = 0) -> Message:
    """Fill a message with nonsense of the right types."""
    for field in message.DESCRIPTOR.fields:
        if dice.random() < 0.3 or depth > 3:
            continue
        holder = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for _ in range(dice.randrange(4)):
                holder[str(nonsense(field.message_type.fields_by_name["key"], dice))] = str(dice.random())
        elif field.is_repeated and field.message_type is not None:
            for _ in range(dice.randrange(3)):
                scramble(holder.add(), dice, depth + 1)
        elif field.is_repeated:
            holder.extend(nonsense(field, dice) for _ in range(dice.randrange(4)))
        elif field.message_type is not None:
            holder.SetInParent()
            scramble(holder, dice, depth + 1)
        else:
            setattr(message, field.name, nonsense(field, dice))
    return message  # type: ignore[no-any-return]  # generated classes are not typed here


def nonsense(field: Any, dice: random.Random) -> Any:
    """A value that the field can hold and hardly anybody means."""
    low, high = {
        FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
        FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
        FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
        FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
        FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
    }.get(field.cpp_type, (0, 0))
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = dice.choice(TEXTS)
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_BOOL:
            return dice.random() < 0.5
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return dice.choice((0.0, -1.0, float("nan"), float("inf")))
        case _:
            return dice.choice([number for number in NUMBERS if low <= number <= high])


def undecodable(rpc: Rpc, dice: random.Random) -> bytes:
    """Bytes that are no message of the method."""
    while True:
        noise = dice.randbytes(dice.randint(1, 300))
        raw = dice.choice((noise, b"\x0a\xff\xff\x03ab", b"\x0b" * 900, b"\x00\x01"))
        try:
            rpc.blank().ParseFromString(raw)
        except DecodeError:
            return raw


async def refused(provider: Provider, rpc: Rpc, raw: bytes) -> bool:
    """Send a request; tell whether it was refused, after checking the form of the refusal."""
    try:
        await call(provider.channel, rpc, raw, None, timeout=DEADLINE)
    except grpc.aio.AioRpcError as refusal:
        error = refusal
    else:
        return False
    shown = f"{rpc} {raw[:80]!r} {error.code()} {error.details()}"
    assert error.code() not in {StatusCode.INTERNAL, StatusCode.UNKNOWN}, shown
    assert error.code() is not StatusCode.DEADLINE_EXCEEDED, shown
    if len(raw) < OVERSIZE or error.code() is not StatusCode.RESOURCE_EXHAUSTED:
        (info,) = infos(error)
        assert info.domain == rpc.package, shown
        assert info.reason in REASONS, shown
    return True


async def test_every_rpc_of_a_provider_answers_nonsense_with_registered_errors(tmp_path: Path) -> None:
    """200 requests per RPC, half decodable, one oversize: typed refusals only, and the provider goes on."""
    async with Provider.started(tmp_path) as provider:
        for rpc in RPCS:
            dice = random.Random(f"29 {rpc}")
            requests = [undecodable(rpc, dice) for _ in range(REQUESTS // 2)]
            if rpc.method not in ENDING:
                requests += [scramble(rpc.blank(), dice).SerializeToString() for _ in range(REQUESTS // 2)]
            requests.append(b"\xff" * OVERSIZE)
            outcomes = list[bool]()
            for batch in range(0, len(requests), AT_ONCE):
                calls = (refused(provider, rpc, raw) for raw in requests[batch : batch + AT_ONCE])
                outcomes += await asyncio.gather(*calls)
            assert outcomes.count(True) > REQUESTS // 2, rpc
        probed = await provider.control.Probe(control_pb2.ProbeRequest(), timeout=DEADLINE)
        assert probed.ready
        assert "Traceback" not in provider.log.read_text()
