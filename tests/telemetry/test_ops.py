"""The HTTP responder holds nobody up: one bounded request a connection, then the end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.telemetry import ops
from tyrum_gateway.telemetry.ops import CONNECTIONS, MAX_HEADER, Operations, Readiness
from tyrum_gateway.telemetry.reference import render

DEADLINE = 20.0
LIVEZ = b"GET /livez HTTP/1.1\r\n\r\n"
ROOT = Path(__file__).resolve().parents[2]


async def measured() -> bytes:
    """Some metrics."""
    return b"x 1\n"


async def nothing() -> list[str]:
    """What a ready gateway lacks."""
    return []


async def broken() -> bytes:
    """Metrics whose store has failed."""
    raise StateUnusable("the disk is full at /secret/path")


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    """A responder of a gateway that is ready."""
    operations = Operations(Readiness(nothing, phase=""), measured)
    async with operations.listening("127.0.0.1", 0) as bound:
        yield int(bound.rpartition(":")[2])


async def exchange(port: int, request: bytes) -> bytes:
    """Send, and read to the end; a reset is an end too."""
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request)
            await writer.drain()
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.transport.abort()


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"GET /metrics HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /readyz?verbose=1 HTTP/1.1\r\nA: b\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /readyz\r\n\r\n", b"HTTP/1.1 400 "),
        (b"\x16\x03\x01\x02\r\n\r\n", b"HTTP/1.1 400 "),
        (b"\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /livez HTTP/1.1\r\n" + b"x" * (2 * MAX_HEADER) + b"\r\n\r\n", b"HTTP/1.1 400 "),
        (b"HEAD /livez HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 "),
    ],
)
async def test_every_request_gets_one_answer(port: int, request_: bytes, expected: bytes) -> None:
    """Whatever is sent, at most one bounded answer comes, and the connection ends."""
    answer = await exchange(port, request_)
    # An end in the middle of what is still sent can take the answer along.
    assert answer.startswith(expected) or (len(request_) > MAX_HEADER and not answer)
    assert answer.count(b"HTTP/1.1 ") <= 1


async def test_who_says_nothing_is_not_waited_for(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a request ends by itself, and others are served in the meantime."""
    _, silent = await asyncio.open_connection("127.0.0.1", port)
    assert (await exchange(port, LIVEZ)).startswith(b"HTTP/1.1 200 OK")
    silent.transport.abort()
    monkeypatch.setattr(ops, "SECONDS", 0.05)
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_connections_are_bounded(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds all connections open keeps no probe out: each one more is answered and ends the oldest."""
    monkeypatch.setattr(ops, "SECONDS", DEADLINE * 3)
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS + 1)]
    assert b"200 OK" in await exchange(port, LIVEZ)
    async with asyncio.timeout(DEADLINE):
        assert await held[0][0].read() == b"", "the oldest was ended"
    for _, writer in held:
        writer.transport.abort()


async def test_what_is_missing_is_named_line_by_line() -> None:
    """`/readyz` is 503 with each missing part on a line, and with the phase alone while nothing is served."""
    missing = ["provider a: rejected", "provider b: starting"]

    async def lacking() -> list[str]:
        return missing

    readiness = Readiness(lacking)
    operations = Operations(readiness, measured)
    starting = await operations.answer(b"GET /readyz HTTP/1.1")
    assert (starting.status, starting.body) == (503, b"starting\n")
    readiness.phase = ""
    serving = await operations.answer(b"GET /readyz HTTP/1.1")
    assert (serving.status, serving.body) == (503, b"provider a: rejected\nprovider b: starting\n")
    missing.clear()
    assert (await operations.answer(b"GET /readyz HTTP/1.1")).status == 200


async def test_a_failure_tells_nothing() -> None:
    """When the store fails, `/metrics` is 500 without the reason, and the probes still answer."""
    operations = Operations(Readiness(nothing, phase=""), broken)
    answer = await operations.answer(b"GET /metrics HTTP/1.1")
    assert answer.status == 500
    assert b"secret" not in answer.body
    assert (await operations.answer(b"GET /livez HTTP/1.1")).status == 200


async def test_the_end_does_not_wait_for_who_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """When the responder ends, open connections end with it, and none of it is reported as a failure."""
    operations = Operations(Readiness(nothing, phase=""), measured)
    async with asyncio.timeout(DEADLINE):
        async with operations.listening("127.0.0.1", 0) as bound:
            port = int(bound.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert (await exchange(port, LIVEZ)).startswith(b"HTTP/1.1 200 OK")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.transport.abort()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_taken_address_is_said(port: int) -> None:
    """Two responders do not share an address; the error names the key."""
    operations = Operations(Readiness(nothing), measured)
    with pytest.raises(StateUnusable, match=r"listen\.ops"):
        async with operations.listening("127.0.0.1", port):
            pass


def test_the_page_is_up_to_date() -> None:
    """docs/reference/metrics.md is what the code generates."""
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    assert page == render(), "run .venv/bin/python -m tyrum_gateway.telemetry.reference > that file"
