"""What stands before every handler: bearer, order of life, capacity, and the one shape of errors."""

import asyncio
import json
import random
from typing import Any

import grpc
import pytest

from tests.kit.processes import (
    BEARER,
    CREDENTIALS,
    DEADLINE,
    SECRET,
    Refused,
    Started,
    handshake_request,
    refusal,
)
from tests.kit.sample_provider import DRAIN_MARGIN
from tyrum.isolation.v1 import isolation_pb2
from tyrum.provider.v1 import control_pb2

CONTROL_METHODS = [
    method.name for method in control_pb2.DESCRIPTOR.services_by_name["ProviderControlService"].methods
]
DOMAIN_METHODS = [
    method.name for method in isolation_pb2.DESCRIPTOR.services_by_name["IsolationService"].methods
]
CONTROL = "tyrum.provider.v1.ProviderControlService"
DOMAIN = "tyrum.isolation.v1.IsolationService"


def _start(started: Started, operation: str) -> Any:
    request = isolation_pb2.StartProcessRequest(operation_id=operation)
    return started.domain.StartProcess(request, timeout=DEADLINE, metadata=BEARER)


async def _read(started: Started, process: str) -> list[isolation_pb2.ReadOutputResponse]:
    request = isolation_pb2.ReadOutputRequest(process_id=process)
    return [chunk async for chunk in started.domain.ReadOutput(request, timeout=DEADLINE, metadata=BEARER)]


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ((), "TOKEN_MISSING"),
        ((("authorization", "Bearer wrong"),), "TOKEN_INVALID"),
        ((("authorization", ""),), "TOKEN_INVALID"),
        ((("authorization", CREDENTIALS.bearer),), "TOKEN_INVALID"),
        ((("authorization", f"Basic {CREDENTIALS.bearer}"),), "TOKEN_INVALID"),
        ((("authorization", f"Bearer {CREDENTIALS.bearer[:-1]}"),), "TOKEN_INVALID"),
        ((*BEARER, *BEARER), "TOKEN_INVALID"),
    ],
)
async def test_nothing_answers_without_the_bearer(
    shared_configured: Started, metadata: tuple[tuple[str, str], ...], reason: str
) -> None:
    """Every RPC but Handshake and health refuses a missing or wrong bearer, unknown methods included."""
    methods = [f"{CONTROL}/{name}" for name in CONTROL_METHODS if name != "Handshake"]
    methods += [f"{DOMAIN}/{name}" for name in DOMAIN_METHODS] + [
        f"{DOMAIN}/NoSuchMethod",
        "no.such.Service/Method",
    ]
    for method in methods:
        refused = await refusal(shared_configured.raw(method, b"", metadata))
        assert (refused.code, refused.reason) == (grpc.StatusCode.UNAUTHENTICATED, reason), method
        assert refused.infos[0].domain == method.rpartition("/")[0].rpartition(".")[0]
        assert CREDENTIALS.bearer not in str(refused)
    assert shared_configured.process.poll() is None


@pytest.mark.parametrize("method", CONTROL_METHODS)
async def test_undecodable_requests_are_the_callers_mistake(shared: Started, method: str) -> None:
    """Two hundred requests of random bytes get typed answers only, and the provider goes on."""
    noise = random.Random(method)
    junk = [noise.randbytes(noise.randrange(1, 200)) for _ in range(20 if method == "Shutdown" else 200)]
    junk += [b"\xff" * 50, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x02\xff\xfe"]
    if method == "Shutdown":
        junk = [
            b"\x0a" + item for item in junk
        ]  # field 1 is a message: a valid prefix must not end the test early
    for request in junk:
        try:
            await shared.raw(f"{CONTROL}/{method}", request)
        except grpc.aio.AioRpcError as error:
            refused = await refusal(_again(error))
            assert refused.code is not grpc.StatusCode.UNKNOWN
            assert refused.reason in {"FIELD_INVALID", "CONFIG_INVALID", "CONTRACT_INCOMPATIBLE"}, refused
            assert refused.infos[0].domain == "tyrum.provider.v1"
    undecodable = await refusal(shared.raw(f"{CONTROL}/{method}", b"\xff" * 50))
    assert (undecodable.code, undecodable.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    assert (await shared.control.Handshake(handshake_request(), timeout=DEADLINE)).proof


async def _again(error: grpc.aio.AioRpcError) -> None:
    raise error


@pytest.mark.parametrize("method", DOMAIN_METHODS)
async def test_undecodable_domain_requests_are_the_callers_mistake(
    shared_configured: Started, method: str
) -> None:
    """Unary and streaming domain methods refuse undecodable bytes with FIELD_INVALID."""
    refused = await refusal(shared_configured.raw(f"{DOMAIN}/{method}", b"\xff" * 50))
    assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    assert refused.infos[0].domain == "tyrum.isolation.v1"


async def test_unknown_fields_are_tolerated(shared: Started) -> None:
    """Fields of a later contract do not disturb."""
    extra = b"\xfa\x3e\x03abc"  # field 1007
    answer = await shared.raw(f"{CONTROL}/Handshake", handshake_request().SerializeToString() + extra)
    assert control_pb2.HandshakeResponse.FromString(answer).proof


async def test_domain_calls_wait_for_configure(shared: Started) -> None:
    """Before Configure every domain RPC, streaming ones included, is NOT_CONFIGURED."""
    for name in DOMAIN_METHODS:
        refused = await refusal(shared.raw(f"{DOMAIN}/{name}", b""))
        assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NOT_CONFIGURED")
        assert refused.infos[0].domain == "tyrum.isolation.v1"


@pytest.mark.parametrize(
    "method", [f"{DOMAIN}/NoSuchMethod", f"{CONTROL}/NoSuchMethod", f"{DOMAIN}/ListProcesses"]
)
async def test_methods_not_offered_say_so(shared_configured: Started, method: str) -> None:
    """Unknown methods and methods the author did not write are CAPABILITY_NOT_DECLARED."""
    refused = await refusal(shared_configured.raw(method, b""))
    assert (refused.code, refused.reason) == (grpc.StatusCode.UNIMPLEMENTED, "CAPABILITY_NOT_DECLARED")


def _is_incident(refused: Refused, log: str) -> None:
    assert (refused.code, refused.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    incident = refused.metadata["incident"]
    assert incident in refused.message
    assert not any(word in str(refused) for word in ("RuntimeError", "Traceback", ".py", "log in", SECRET))
    assert incident in log


@pytest.mark.parametrize(
    ("operation", "cause"),
    [("explode", "RuntimeError"), ("wrong type", "TypeError"), ("cancel", "CancelledError")],
)
async def test_unexpected_failures_tell_an_incident_only(
    shared_configured: Started, operation: str, cause: str
) -> None:
    """Of an unexpected failure the wire carries an incident id, the log the cause, and neither a secret."""
    refused = await refusal(_start(shared_configured, operation))
    _is_incident(refused, shared_configured.log())
    records = [json.loads(line) for line in shared_configured.log().splitlines()]
    (record,) = (record for record in records if refused.metadata["incident"] in record["message"])
    assert cause in record["exception"]
    assert SECRET not in shared_configured.log()


async def test_streams_fail_in_the_same_shape(shared_configured: Started) -> None:
    """A stream that fails after its first chunk ends with one typed error, expected or not."""
    _is_incident(await refusal(_read(shared_configured, "explode")), shared_configured.log())
    refused = await refusal(_read(shared_configured, "refuse"))
    assert (refused.code, refused.reason) == (grpc.StatusCode.DATA_LOSS, "STORE_CORRUPT")
    assert [chunk.eof for chunk in await _read(shared_configured, "whole")] == [False, True]


async def test_authors_errors_reach_the_caller(shared_configured: Started) -> None:
    """A ServiceError of a handler arrives with its code, reason, field and the service's own package."""
    refused = await refusal(_start(shared_configured, "invalid"))
    assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    assert refused.infos[0].domain == "tyrum.isolation.v1"
    assert refused.metadata == {"field": "spec.argv"}


async def test_capacity_bounds_starts_and_nothing_else(configured: Started) -> None:
    """Starts beyond the limit are refused with RetryInfo; waits, probes and health go on; it recovers."""
    waits = [
        asyncio.create_task(
            _await(
                configured.domain.WaitProcess(
                    isolation_pb2.WaitProcessRequest(), timeout=DEADLINE, metadata=BEARER
                )
            )
        )
        for _ in range(5)
    ]
    starts = [asyncio.create_task(_await(_start(configured, "wait"))) for _ in range(2)]
    await _in_flight(configured, 2)
    refused = await refusal(_start(configured, "third"))
    assert (refused.code, refused.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT")
    assert refused.metadata == {"limit": "2"}
    assert refused.retries[0].retry_delay.ToMilliseconds() > 0
    assert await configured.health(DOMAIN) == 1
    await configured.domain.CancelProcess(
        isolation_pb2.CancelProcessRequest(), timeout=DEADLINE, metadata=BEARER
    )
    await asyncio.gather(*waits, *starts)
    await _start(configured, "fourth")


async def _await(call: Any) -> Any:
    return await call


async def _in_flight(started: Started, wanted: int) -> None:
    async with asyncio.timeout(DEADLINE):
        while True:
            probe = await started.control.Probe(control_pb2.ProbeRequest(), timeout=DEADLINE, metadata=BEARER)
            if probe.in_flight == wanted + 5:  # the sample itself reports five that outlive their calls
                return


async def test_cancelled_calls_free_their_place(configured: Started) -> None:
    """A call that its caller cancelled stops counting against the limit."""
    calls = [_start(configured, "wait") for _ in range(2)]
    tasks = [asyncio.create_task(_await(call)) for call in calls]
    await _in_flight(configured, 2)
    for call in calls:
        call.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await _in_flight(configured, 0)
    await _start(configured, "next")
    assert "incident" not in configured.log()


async def test_expired_calls_free_their_place(configured: Started) -> None:
    """A call whose deadline passed stops counting against the limit."""
    request = isolation_pb2.StartProcessRequest(operation_id="wait")
    for _ in range(2):
        refused = await refusal(configured.domain.StartProcess(request, timeout=0.2, metadata=BEARER))
        assert refused.code is grpc.StatusCode.DEADLINE_EXCEEDED
    await _in_flight(configured, 0)


async def test_draining_refuses_starts_and_lets_the_rest_go_on(configured: Started) -> None:
    """After Drain a start is DRAINING, other calls answer, and open starts end undisturbed."""
    running = asyncio.create_task(_await(_start(configured, "wait")))
    await _in_flight(configured, 1)
    request = control_pb2.DrainRequest()
    drained = await configured.control.Drain(request, timeout=DRAIN_MARGIN + 0.5, metadata=BEARER)
    assert drained.in_flight == 1 + 5
    refused = await refusal(_start(configured, "late"))
    assert (refused.code, refused.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    await configured.domain.CancelProcess(
        isolation_pb2.CancelProcessRequest(), timeout=DEADLINE, metadata=BEARER
    )
    await running
    again = await configured.control.Drain(control_pb2.DrainRequest(), timeout=DEADLINE, metadata=BEARER)
    assert again.in_flight == 5


async def test_messages_above_four_mebibytes_are_refused(shared_configured: Started) -> None:
    """A request above the limit is RESOURCE_EXHAUSTED and the provider lives on."""
    refused = await refusal(shared_configured.raw(f"{CONTROL}/Handshake", bytes(4 * 1024 * 1024 + 1)))
    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await shared_configured.control.Handshake(handshake_request(), timeout=DEADLINE)).proof
