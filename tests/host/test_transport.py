"""Traps of gRPC over UNIX sockets and of process identity that the host must not fall into."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest
from grpc import aio

from tests.host.support import Place, eventually
from tyrum.isolation.v1 import isolation_pb2
from tyrum.provider.v1 import control_pb2
from tyrum_provider_host import (
    OperationContext,
    OutcomeUnknown,
    OutputStream,
    ProviderBug,
    ProviderUnavailable,
)
from tyrum_provider_host.channel_client import ProviderChannel
from tyrum_provider_host.control_client import ControlClient
from tyrum_provider_host.isolation import IsolationClient
from tyrum_provider_host.launch import create_directory, prepare_runtime_directory, sweep
from tyrum_provider_host.spec import TimeBounds

EMPTY_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
METHOD = "/test.Service/Method"
CONTEXT = OperationContext(binding_id="b", provider_id="p", profile="d", contract_major=1, actor="a")


@contextlib.asynccontextmanager
async def listening(place: Place) -> AsyncIterator[tuple[Path, bytearray]]:
    """Listen as an HTTP/2 peer that sends its settings and records what it receives."""
    place.runtime.mkdir(parents=True)
    path, received = place.runtime / "p.sock", bytearray()
    connections: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(writer)
        writer.write(EMPTY_SETTINGS)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                received.extend(data)

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield path, received
    finally:
        server.close()
        for writer in connections:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await server.wait_closed()


async def call(channel: ProviderChannel, timeout: float = 60.0) -> bytes:
    """Call the test method."""
    method: aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.channel.unary_unary(METHOD)
    return await channel.unary(method, b"", name="Method", domain="test", timeout=timeout)


async def test_authority_is_localhost_and_bearer_waits_for_the_proof(place: Place) -> None:
    """The path is never sent as authority, and no credential is sent before `authenticate`."""
    async with listening(place) as (path, received):
        channel = ProviderChannel("good", path)
        before = asyncio.create_task(call(channel))
        await eventually(lambda: b"Method" in received)
        assert b"localhost" in received
        assert b"authorization" not in received
        assert b"p.sock" not in received
        channel.authenticate("the-bearer")
        after = asyncio.create_task(call(channel))
        await eventually(lambda: b"the-bearer" in received)
        assert received.count(b"authorization") == 1

        closing = asyncio.get_running_loop().time()
        await channel.close("the instance has ended")
        for task in (before, after):
            with pytest.raises(OutcomeUnknown, match="the instance has ended"):
                await task
        with pytest.raises(ProviderUnavailable, match="the instance has ended"):
            await call(channel)
        assert asyncio.get_running_loop().time() - closing < 10.0


@contextlib.asynccontextmanager
async def served(
    place: Place,
    service: str,
    mask: Callable[[str], str] = str,
    /,
    **methods: "grpc.RpcMethodHandler[bytes, bytes]",
) -> AsyncIterator[ProviderChannel]:
    """Serve raw methods of one service, and connect to them."""
    place.runtime.mkdir(parents=True, exist_ok=True)
    path = place.runtime / "p.sock"
    server = aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    channel = ProviderChannel("good", path, mask=mask)
    try:
        yield channel
    finally:
        await channel.close("done")
        await server.stop(None)


async def test_oversized_answers_are_refused(place: Place) -> None:
    """An answer above 4 MiB fails its call and leaves the outcome unknown."""

    async def huge(request: bytes, context: object) -> bytes:
        return b"x" * (4 * 1024 * 1024 + 64)

    method: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(huge)
    async with served(place, "test.Service", Method=method) as channel:
        with pytest.raises(OutcomeUnknown, match="RESOURCE_EXHAUSTED"):
            await call(channel)


async def test_an_answer_that_is_no_message_leaves_the_outcome_unknown(place: Place) -> None:
    """What cannot be read, or claims an exit without a status, is the provider's bug; in streams too."""

    async def garbage(request: bytes, context: object) -> bytes:
        return b"\xff\xff\xff"

    async def stream(request: bytes, context: object) -> AsyncIterator[bytes]:
        yield b"\xff\xff\xff"

    async def exit_without_status(request: bytes, context: object) -> bytes:
        process = isolation_pb2.Process(
            state=isolation_pb2.PROCESS_STATE_ENDED,
            handle=b"h",
            handle_version=1,
            result=isolation_pb2.ProcessResult(cause=isolation_pb2.END_CAUSE_EXITED),
        )
        process.started_at.GetCurrentTime()
        return isolation_pb2.WaitProcessResponse(process=process).SerializeToString()

    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "WaitProcess": grpc.unary_unary_rpc_method_handler(exit_without_status),
        "GetProcess": grpc.unary_unary_rpc_method_handler(garbage),
        "ReadOutput": grpc.unary_stream_rpc_method_handler(stream),
    }
    async with served(place, "tyrum.isolation.v1.IsolationService", **methods) as channel:
        client = IsolationClient(channel)
        with pytest.raises(ProviderBug, match="no message of this method"):
            await client.get(CONTEXT, "proc_x")
        with pytest.raises(ProviderBug, match="lacks the status"):
            await client.wait(CONTEXT, "proc_x", timeout=1.0)
        with pytest.raises(ProviderBug, match="no message of this method"):
            async for _ in client.read_output(CONTEXT, "proc_x", OutputStream.STDOUT):
                pass


async def test_what_a_provider_says_of_itself_repeats_no_secret(place: Place) -> None:
    """Posture and conditions are shown to people: secrets in them are masked, and names are as they were."""

    async def posture(request: bytes, context: object) -> bytes:
        claim = isolation_pb2.Claim(
            name="net.none", status=isolation_pb2.CLAIM_STATUS_UNPROVED, mechanism="none, with key none"
        )
        return isolation_pb2.GetPostureResponse(claims=[claim], notes=["key none"]).SerializeToString()

    async def probe(request: bytes, context: object) -> bytes:
        condition = control_pb2.Condition(type="none", message="key none")
        return control_pb2.ProbeResponse(conditions=[condition]).SerializeToString()

    def mask(text: str) -> str:
        return text.replace("none", "***")

    method: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(posture)
    async with served(place, "tyrum.isolation.v1.IsolationService", mask, GetPosture=method) as channel:
        shown = await IsolationClient(channel).posture()
    assert [(claim.name, claim.mechanism) for claim in shown.claims] == [("net.none", "***, with key ***")]
    assert shown.notes == ("key ***",)
    method = grpc.unary_unary_rpc_method_handler(probe)
    async with served(place, "tyrum.provider.v1.ProviderControlService", mask, Probe=method) as channel:
        facts = await ControlClient(channel, TimeBounds()).probe(frozenset())
    assert facts.detail.endswith("not TRUE: ***: key ***")


async def test_a_refused_call_is_made_once(place: Place) -> None:
    """UNAVAILABLE may mean that the work was begun: neither gRPC nor the host repeats a call by itself."""
    calls = list[bytes]()

    async def refuse(request: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
        calls.append(request)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "later")

    method: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(refuse)
    async with served(place, "test.Service", Method=method) as channel:
        with pytest.raises(OutcomeUnknown, match="UNAVAILABLE"):
            await call(channel)
    assert len(calls) == 1


async def test_a_dead_path_fails_at_once(place: Place) -> None:
    """A call to a path where nobody listens fails long before its deadline."""
    channel = ProviderChannel("good", place.runtime / "p.sock")
    begun = asyncio.get_running_loop().time()
    with pytest.raises(OutcomeUnknown, match="UNAVAILABLE"):
        await call(channel, timeout=60.0)
    assert asyncio.get_running_loop().time() - begun < 15.0
    await channel.close("done")


def test_fork_support_is_off_before_grpc_loads() -> None:
    """Importing the host turns gRPC's fork handlers off, when the environment does not say so."""
    code = "import os, tyrum_provider_host; print(os.environ['GRPC_ENABLE_FORK_SUPPORT'])"
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "0\n"


@pytest.mark.parametrize("change", [{"started": 1}, {"boot": "another boot"}, {"pid": 2**22 - 1}])
def test_a_recycled_pid_is_not_an_owner(place: Place, change: dict[str, object]) -> None:
    """A directory is swept when its owner's pid, start time or boot differs, and kept when none does."""
    prepare_runtime_directory(place.runtime)
    kept, gone = create_directory(place.runtime), create_directory(place.runtime)
    marker = gone.path / ".host"
    marker.write_text(json.dumps(json.loads(marker.read_text("ascii")) | change), "ascii")
    assert sweep(place.runtime) == (gone.path,)
    assert kept.path.is_dir()


def test_sweeping_follows_no_links(place: Place) -> None:
    """A link in the runtime directory is left alone, and so is what it points to."""
    prepare_runtime_directory(place.runtime)
    outside = place.runtime.parent / "outside"
    outside.mkdir()
    (outside / ".host").write_text('{"pid": 1, "started": 1, "boot": "x"}', "ascii")
    (place.runtime / "deadbeef").symlink_to(outside)
    assert sweep(place.runtime) == ()
    assert (outside / ".host").exists()
