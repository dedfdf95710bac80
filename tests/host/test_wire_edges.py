"""Errors, logs and socket peers: what crosses from an untrusted provider into the host."""

import asyncio
import os
import resource
import socket
import sys
from pathlib import Path

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from tests.host.support import DOUBLES, Place, eventually
from tyrum.error.v1 import error_pb2
from tyrum_provider_host import (
    CallError,
    Capacity,
    Conflict,
    Effect,
    InvalidRequest,
    NotFound,
    NotOffered,
    OutcomeUnknown,
    PreconditionFailed,
    ProviderBug,
    Transient,
    Unauthenticated,
    WaitExpired,
)
from tyrum_provider_host.errors import REGISTERED_CODES, translate
from tyrum_provider_host.logs import MAX_LINES, LogReader, LogRing, sanitise
from tyrum_provider_host.socketpeer import CannotLook, belongs_to, open_connections, try_connect

DOMAIN = "tyrum.isolation.v1"


def failure(
    code: grpc.StatusCode,
    *reasons: str,
    domain: str = DOMAIN,
    text: str = "words",
    retry: float | None = None,
) -> CallError:
    """Translate a failed call that carries these reasons."""
    details = []
    for reason in reasons:
        details.append(AnyMessage())
        details[-1].Pack(
            error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata={"field": "x\x1b[1m"})
        )
    if retry is not None:
        details.append(AnyMessage())
        details[-1].Pack(error_details_pb2.RetryInfo(retry_delay=Duration(nanos=int(retry * 1e9))))
    status = status_pb2.Status(code=code.value[0], message=text, details=details)
    trailing = aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    error = aio.AioRpcError(code, aio.Metadata(), trailing, details=text)
    return translate(error, method="StartProcess", domain=DOMAIN)


def test_every_registered_reason_has_its_code() -> None:
    """The host knows exactly the reasons of the registry."""
    names = {name.removeprefix("ERROR_REASON_") for name in error_pb2.ErrorReason.keys()}  # noqa: SIM118
    assert set(REGISTERED_CODES) == names - {"UNSPECIFIED"}


@pytest.mark.parametrize("reason", sorted(REGISTERED_CODES))
def test_registered_reasons_translate_by_class(reason: str) -> None:
    """A registered reason becomes the class of its recovery; only bugs leave effects unknown."""
    expected: dict[grpc.StatusCode, type[CallError]] = {
        grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
        grpc.StatusCode.ALREADY_EXISTS: InvalidRequest,
        grpc.StatusCode.NOT_FOUND: NotFound,
        grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
        grpc.StatusCode.PERMISSION_DENIED: Unauthenticated,
        grpc.StatusCode.FAILED_PRECONDITION: PreconditionFailed,
        grpc.StatusCode.ABORTED: Conflict,
        grpc.StatusCode.RESOURCE_EXHAUSTED: Capacity,
        grpc.StatusCode.UNAVAILABLE: Transient,
        grpc.StatusCode.DEADLINE_EXCEEDED: WaitExpired,
        grpc.StatusCode.UNIMPLEMENTED: NotOffered,
        grpc.StatusCode.INTERNAL: ProviderBug,
        grpc.StatusCode.DATA_LOSS: ProviderBug,
    }
    error = failure(REGISTERED_CODES[reason], reason)
    assert type(error) is expected[REGISTERED_CODES[reason]]
    assert error.reason == reason
    assert (error.effect is Effect.UNKNOWN) is isinstance(error, ProviderBug)


@pytest.mark.parametrize(
    ("code", "reasons", "domain"),
    [
        (grpc.StatusCode.UNAVAILABLE, (), DOMAIN),
        (grpc.StatusCode.DEADLINE_EXCEEDED, (), DOMAIN),
        (grpc.StatusCode.CANCELLED, (), DOMAIN),
        (grpc.StatusCode.UNKNOWN, (), DOMAIN),
        (grpc.StatusCode.INVALID_ARGUMENT, (), DOMAIN),
        (grpc.StatusCode.UNAVAILABLE, ("DRAINING", "DRAINING"), DOMAIN),
        (grpc.StatusCode.UNAVAILABLE, ("DRAINING",), "evil.example"),
        (grpc.StatusCode.UNAVAILABLE, ("FIELD_INVALID",), DOMAIN),
        (grpc.StatusCode.INVALID_ARGUMENT, ("MADE_UP",), DOMAIN),
    ],
)
def test_everything_else_leaves_the_outcome_unknown(
    code: grpc.StatusCode, reasons: tuple[str, ...], domain: str
) -> None:
    """Without exactly one registered reason of the right service under its code, nothing is proved."""
    error = failure(code, *reasons, domain=domain)
    assert type(error) is OutcomeUnknown
    assert error.effect is Effect.UNKNOWN


def test_a_method_the_server_lacks_is_not_offered() -> None:
    """GRPC's own answer for an unknown method proves that nothing ran."""
    assert type(failure(grpc.StatusCode.UNIMPLEMENTED)) is NotOffered


def test_capacity_carries_a_bounded_delay() -> None:
    """RetryInfo sets the back-off; absurd delays are capped."""
    error = failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT", retry=0.25)
    assert isinstance(error, Capacity)
    assert error.retry_after == 0.25


def test_provider_text_is_sanitised() -> None:
    """Control characters, terminal sequences and excess length do not get through."""
    error = failure(grpc.StatusCode.UNAVAILABLE, "DRAINING", text="\x1b[31mred\x00\u202e" + "x" * 5000)
    assert error.detail.startswith("redxxx")
    assert len(error.detail) == 512
    assert error.metadata == {"field": "x"}
    assert sanitise("a\nb\tc\r", 80) == "a b c"


async def logged(*writes: bytes, secrets: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Write to a pipe that is read into a ring, and return what the ring kept."""
    ring = LogRing()
    ring.redact(secrets)
    read, write = os.pipe()
    reader = LogReader("stderr", read, ring)
    for data in writes:
        left = data
        while left:
            left = left[await asyncio.to_thread(os.write, write, left[:65536]) :]
    os.close(write)
    await eventually(lambda: not reader._open)
    return ring.lines


async def test_log_masks_secrets_across_writes_and_cuts() -> None:
    """A secret is masked when it arrives in pieces, spans lines, or lies on the cut of a long line."""
    secret = "s3cret-" + "z" * 40
    lines = await logged(b"key=s3cret-", b"z" * 40 + b"\n", secrets=(secret,))
    assert lines == ("stderr: key=***",)
    for padding in range(8 * 1024 - 50, 8 * 1024 + 10, 7):
        lines = await logged(b"a" * padding + secret.encode() + b"\n", secrets=(secret,))
        assert "s3cr" not in "".join(lines)
    shifted = secret.encode() * 200 + b"a" * 400 + secret.encode()
    for cut in range(0, 60, 3):
        assert "s3cr" not in "".join(await logged(b"b" * cut + shifted, secrets=(secret,)))
    lines = await logged(b"one: first-half\nsecond-half\n", secrets=("first-half\nsecond-half",))
    assert lines == ("stderr: one: ***", "stderr: ***")


async def test_log_is_bounded_in_lines_length_and_rate() -> None:
    """Neither many lines nor long ones grow the log, and dropped bytes are counted."""
    lines = await logged(b"".join(b"%d\n" % number for number in range(1000)))
    assert len(lines) == MAX_LINES
    assert lines[-1] == "stderr: 999"
    lines = await logged(b"x" * 3_000_000 + b"\nend\n")
    assert sum(map(len, lines)) < 20_000
    assert lines[-1].endswith("bytes of output dropped]")


async def test_a_stolen_socket_path_is_noticed(place: Place) -> None:
    """When another process takes over the path, both a fresh and an open connection show who listens now."""
    place.runtime.mkdir(parents=True)
    path = place.runtime / "p.sock"
    thief = await asyncio.create_subprocess_exec(
        sys.executable,
        str(DOUBLES / "thief.py"),
        str(path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert thief.stdin is not None
    assert thief.stdout is not None
    assert await thief.stdout.readline() == b"listening\n"
    channel = aio.insecure_channel(f"unix:{path}", options=(("grpc.use_local_subchannel_pool", 1),))
    channel.get_state(try_to_connect=True)
    await eventually(lambda: open_connections(path))
    peer = try_connect(path)
    assert peer is not None
    assert peer.pid == thief.pid
    assert {item.pid for item in open_connections(path)} == {thief.pid}
    assert not belongs_to(peer, leader=os.getpid(), uid=os.geteuid())
    assert belongs_to(peer, leader=thief.pid, uid=os.geteuid())
    assert not belongs_to(peer, leader=thief.pid, uid=os.geteuid() + 1)
    await channel.close()
    thief.stdin.close()
    await thief.wait()


def test_without_a_free_descriptor_nobody_is_taken_for_somebody(place: Place) -> None:
    """That a peer cannot be looked at is said as such: neither that nobody listens, nor that all is well."""
    place.runtime.mkdir(parents=True)
    path = place.runtime / "p.sock"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(os.fspath(path))
        server.listen()
        client.connect(os.fspath(path))
        assert len(open_connections(path)) == 1
        with open(os.devnull, "rb") as lowest:  # noqa: PTH123 - its number is the lowest that is free
            free = lowest.fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            with pytest.raises(CannotLook, match="open files"):
                try_connect(path)
            with pytest.raises(CannotLook, match="open files"):
                open_connections(path)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert len(open_connections(path)) == 1


def test_connecting_says_whether_anybody_could_listen(place: Place) -> None:
    """A missing path means not yet; a regular file means never."""
    place.runtime.mkdir(parents=True)
    path = place.runtime / "p.sock"
    assert try_connect(path) is None
    path.write_text("", encoding="ascii")
    with pytest.raises(ConnectionRefusedError):
        try_connect(Path(path))
