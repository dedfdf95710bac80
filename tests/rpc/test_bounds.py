"""What callers without a right may make the gateway hold: streams, connections, and how long."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.client import info_of
from tyrum.approval.v1.approval_pb2_grpc import ApprovalServiceServicer
from tyrum.audit.v1.audit_pb2_grpc import AuditServiceServicer
from tyrum.catalog.v1.catalog_pb2_grpc import CatalogServiceServicer
from tyrum.chat.v1.chat_pb2_grpc import ChatServiceServicer
from tyrum.identity.v1.identity_pb2_grpc import IdentityServiceServicer
from tyrum.policy.v1.policy_pb2_grpc import PolicyServiceServicer
from tyrum.run.v1.run_pb2_grpc import RunServiceServicer
from tyrum_gateway.app.identity import Identity
from tyrum_gateway.app.sessions import Sessions
from tyrum_gateway.bootstrap.system import RandomIds, SystemClock
from tyrum_gateway.rpc import server
from tyrum_gateway.rpc.guard import Guard
from tyrum_gateway.rpc.health import LONGEST_NAME, MOST_WATCHES
from tyrum_gateway.rpc.server import GatewayServer, Services
from tyrum_gateway.storage import SqliteStore

DEADLINE = 30.0

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""How a client of HTTP/2 begins; its settings follow."""
_SETTINGS, _MAX_CONCURRENT_STREAMS = 4, 3
_NO_WINDOW = bytes((0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0))
"""Settings of a client that takes no data on any of its streams."""
_BASES: tuple[Any, ...] = (
    ChatServiceServicer,
    ApprovalServiceServicer,
    CatalogServiceServicer,
    PolicyServiceServicer,
    AuditServiceServicer,
    RunServiceServicer,
    IdentityServiceServicer,
)


@asynccontextmanager
async def listening(directory: Path) -> AsyncIterator[Path]:
    """The socket of the gateway's server, with no services but health."""
    async with serving(directory) as (path, _):
        yield path


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[tuple[Path, GatewayServer]]:
    """The same, with the server."""
    path, clock, ids = directory / "g.sock", SystemClock(), RandomIds()
    async with await SqliteStore.open(directory / "state" / "tyrum.db") as store:
        identity = Identity(store=store, clock=clock, ids=ids)
        running = GatewayServer(
            guard=Guard(identity=identity, sessions=Sessions(clock), ids=ids),
            services=Services(*(base() for base in _BASES)),
            addresses=[f"unix:{path}"],
        )
        await running.start()
        try:
            yield path, running
        finally:
            await running.stop(0)


def options(**others: int) -> tuple[tuple[str, int], ...]:
    """The server's options, some of them with another value."""
    assert others.keys() <= dict(server._OPTIONS).keys()
    return tuple((key, others.get(key, value)) for key, value in server._OPTIONS)


async def begun(stub: Any, service: str = "") -> Any:
    """Begin a watch, and see that it is one."""
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE)
    await watch.read()
    return watch


async def test_watches_of_health_are_bounded_for_everybody_together(tmp_path: Path) -> None:
    """Over all connections; one too many is told to use Check, which answers, and an end makes room."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", "localhost")]
    async with (
        listening(tmp_path) as path,
        grpc.aio.insecure_channel(f"unix:{path}", options=options) as first,
        grpc.aio.insecure_channel(f"unix:{path}", options=options) as second,
    ):
        stubs = [cast("Any", health_pb2_grpc.HealthStub(cast("Any", one))) for one in (first, second)]
        watches = [await begun(stubs[number % 2]) for number in range(MOST_WATCHES)]
        with pytest.raises(grpc.aio.AioRpcError, match="use `Check`") as caught:
            await begun(stubs[0])
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (info_of(caught.value).reason, info_of(caught.value).domain) == ("QUOTA", "grpc.health.v1")
        answer = await stubs[1].Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        watches.pop().cancel()
        async with asyncio.timeout(DEADLINE):
            while True:
                try:
                    watches.append(await begun(stubs[0]))
                    break
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                        raise  # and otherwise the end of the first has not arrived yet
        for watch in watches:
            watch.cancel()


def watching(path: str) -> bytes:
    """The frames of a stream with an empty request, as HTTP/2 has them."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(
        bytes((0, len(name))) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in fields.items()
    )
    head = len(block).to_bytes(3) + bytes((1, 4, 0, 0, 0, 1))
    return head + block + bytes((0, 0, 5, 0, 1, 0, 0, 0, 1)) + bytes(5)


async def test_who_watches_health_and_takes_nothing_holds_up_nobody(tmp_path: Path) -> None:
    """Others watch all the same, and the gateway's end is told; it would otherwise never come."""
    async with (
        serving(tmp_path) as (path, running),
        grpc.aio.insecure_channel(
            f"unix:{path}", options=[("grpc.default_authority", "localhost")]
        ) as channel,
        asyncio.timeout(DEADLINE),
    ):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(_PREFACE + _NO_WINDOW + watching("/grpc.health.v1.Health/Watch"))
        # The stream's headers come without a window; what follows them never does.
        kind = -1
        while kind != 1:
            head = await reader.readexactly(9)
            kind, _ = head[3], await reader.readexactly(int.from_bytes(head[:3]))
        stub = cast("Any", health_pb2_grpc.HealthStub(cast("Any", channel)))
        other = await begun(stub)
        running.drain()
        assert (await other.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        other.cancel()
        writer.close()


async def test_a_watch_of_health_holds_no_long_name(tmp_path: Path) -> None:
    """A service of any length cannot be parked in the gateway's memory."""
    async with (
        listening(tmp_path) as path,
        grpc.aio.insecure_channel(
            f"unix:{path}", options=[("grpc.default_authority", "localhost")]
        ) as channel,
    ):
        stub = cast("Any", health_pb2_grpc.HealthStub(cast("Any", channel)))
        (await begun(stub, "x" * LONGEST_NAME)).cancel()
        with pytest.raises(grpc.aio.AioRpcError, match="at most 256 characters") as caught:
            await begun(stub, "x" * (LONGEST_NAME + 1))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_connections_to_an_address_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those that say nothing: one too many is closed unanswered, and an end makes room."""
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 3)
    async with listening(tmp_path) as path, asyncio.timeout(DEADLINE):

        async def greeted() -> asyncio.StreamWriter | None:
            reader, writer = await asyncio.open_unix_connection(path)
            if await reader.read(1):
                return writer
            writer.close()
            return None

        held = [await greeted() for _ in range(3)]
        assert all(held)
        assert await greeted() is None
        one = held.pop()
        assert one is not None
        one.close()
        while (again := await greeted()) is None:
            pass  # the end has not arrived yet
        for writer in (*held, again):
            assert writer is not None
            writer.close()


def test_addresses_leave_half_of_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the few descriptors of a login shell, each of three addresses gets its part of one half."""
    for limit, most in ((1024, 170), (resource.RLIM_INFINITY, 1024), (65536, 1024), (3, 1)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert server._most_connections(3) == most


async def test_who_connects_and_says_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that does not begin to speak soon is closed, and leaves its place to others."""
    monkeypatch.setattr(server, "_OPTIONS", options(**{"grpc.server_handshake_timeout_ms": 50}))
    async with listening(tmp_path) as path, asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_unix_connection(path)
        while await reader.read(1024):
            pass  # until it is closed
        writer.close()


async def test_connections_are_bounded_in_calls_and_in_idleness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server states how many calls a connection may have open, and closes one that has none."""
    once = {"grpc.max_connection_idle_ms": 50, "grpc.server_handshake_timeout_ms": server.IDLE_MILLISECONDS}
    monkeypatch.setattr(server, "_OPTIONS", options(**once))
    async with listening(tmp_path) as path, asyncio.timeout(DEADLINE):
        # Nothing is written: who writes to a connection that is closed already may lose what came before.
        reader, writer = await asyncio.open_unix_connection(path)
        kind, payload = -1, b""
        while kind != _SETTINGS:
            head = await reader.readexactly(9)
            kind, payload = head[3], await reader.readexactly(int.from_bytes(head[:3]))
        settings = {
            int.from_bytes(payload[at : at + 2]): int.from_bytes(payload[at + 2 : at + 6])
            for at in range(0, len(payload), 6)
        }
        assert settings[_MAX_CONCURRENT_STREAMS] == server.STREAMS_PER_CONNECTION
        assert server.IDLE_MILLISECONDS >= 60_000
        while await reader.read(1024):
            pass  # until it is closed
        writer.close()
