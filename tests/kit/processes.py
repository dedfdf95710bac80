"""Starts provider processes the way a host does and talks to them over raw stubs."""

import asyncio
import base64
import contextlib
import hashlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tyrum.isolation.v1 import isolation_pb2_grpc
from tyrum.provider.v1 import control_pb2, control_pb2_grpc
from tyrum_provider_kit.definition import installed_contract
from tyrum_provider_kit.proof import Credentials

ROOT = Path(__file__).resolve().parents[2]
TOKEN = hashlib.sha256(b"one-time token of these tests").digest()
TOKEN_LINE = base64.urlsafe_b64encode(TOKEN).rstrip(b"=") + b"\n"
INSTANCE_ID = "inst_01jd8xq5s3m2n4p6r8t0v2w4y6"
NONCE = bytes(range(32))
SECRET = "canary-S3CR3T-value"
CREDENTIALS = Credentials.derive(TOKEN)
BEARER = (("authorization", f"Bearer {CREDENTIALS.bearer}"),)
DEADLINE = 25.0
"""Seconds that a busy machine may need for anything a provider does at once."""

SAMPLE = ("-m", "tests.kit.sample_provider")


@dataclass(frozen=True, slots=True)
class Refused:
    """What an RPC was refused with."""

    code: grpc.StatusCode
    message: str
    infos: tuple[error_details_pb2.ErrorInfo, ...]
    bad_requests: tuple[error_details_pb2.BadRequest, ...]
    retries: tuple[error_details_pb2.RetryInfo, ...]

    @property
    def reason(self) -> str:
        """The reason of the one ErrorInfo."""
        assert len(self.infos) == 1, self
        return str(self.infos[0].reason)

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the one ErrorInfo."""
        assert len(self.infos) == 1, self
        return dict(self.infos[0].metadata)


async def refusal(call: Awaitable[Any]) -> Refused:
    """Await a call that must fail and take its error apart."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        trailers = dict(error.trailing_metadata() or ())
        status = status_pb2.Status.FromString(trailers.get("grpc-status-details-bin", b""))
        found: dict[type, list[Any]] = {
            kind: []
            for kind in (
                error_details_pb2.ErrorInfo,
                error_details_pb2.BadRequest,
                error_details_pb2.RetryInfo,
            )
        }
        for detail in status.details:
            for kind, list_ in found.items():
                message = kind()
                if detail.Unpack(message):
                    list_.append(message)
        infos, bad_requests, retries = (tuple(list_) for list_ in found.values())
        return Refused(error.code(), error.details() or "", infos, bad_requests, retries)
    raise AssertionError(f"the call succeeded: {answer}")


@dataclass
class Started:
    """One provider process."""

    process: subprocess.Popen[bytes]
    directory: Path
    socket: Path
    channel: grpc.aio.Channel | None = None
    _logs: Path = field(default_factory=Path)

    @property
    def control(self) -> control_pb2_grpc.ProviderControlServiceStub:
        """Stub of the control service."""
        return control_pb2_grpc.ProviderControlServiceStub(self._open())

    @property
    def domain(self) -> isolation_pb2_grpc.IsolationServiceStub:
        """Stub of the domain service."""
        return isolation_pb2_grpc.IsolationServiceStub(self._open())

    def raw(self, method: str, request: bytes, metadata: Any = BEARER) -> Awaitable[bytes]:
        """Send bytes to `package.Service/Method`."""
        call: Any = self._open().unary_unary(f"/{method}")
        answer: Awaitable[bytes] = call(request, timeout=DEADLINE, metadata=metadata)
        return answer

    def _open(self) -> grpc.aio.Channel:
        if self.channel is None:
            self.channel = grpc.aio.insecure_channel(
                f"unix:{self.socket}",
                options=[("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)],
            )
        return self.channel

    @property
    def health_stub(self) -> Any:
        """Stub of the health service, which has no types."""
        return health_pb2_grpc.HealthStub(self._open())

    async def health(self, service: str) -> int:
        """Status of a health entry."""
        request = health_pb2.HealthCheckRequest(service=service)
        answer: health_pb2.HealthCheckResponse = await self.health_stub.Check(request, timeout=DEADLINE)
        return answer.status

    async def listening(self) -> "Started":
        """Wait until it listens."""
        await until(lambda: self.process.poll() is not None or answers(self.socket))
        assert self.process.poll() is None, self.log()
        return self

    async def configure(
        self, secrets: Mapping[str, str] | None = None, **config: Any
    ) -> control_pb2.ConfigureResponse:
        """Configure it; without arguments as a working sample."""
        request = configure_request(
            config or {"mode": "plain"}, {"api_key": SECRET} if secrets is None else secrets
        )
        return await self.control.Configure(request, timeout=DEADLINE, metadata=BEARER)

    async def ended(self, seconds: float = DEADLINE) -> int:
        """Wait for its exit status."""
        await until(lambda: self.process.poll() is not None, seconds)
        return self.process.returncode

    def log(self) -> str:
        """Everything it wrote to stdout and stderr."""
        return self._logs.read_text(errors="replace")


def start(
    directory: Path,
    command: tuple[str, ...] = SAMPLE,
    *,
    token_line: bytes = TOKEN_LINE,
    variables: Mapping[str, str] | None = None,
) -> Started:
    """Start a provider with nothing in its environment but what a host gives."""
    path = directory / "p.sock"
    environment = {
        "PATH": "/usr/bin:/bin",
        "TYRUM_PROVIDER_SOCKET": str(path),
        "TYRUM_PROVIDER_INSTANCE_ID": INSTANCE_ID,
        "TYRUM_PROVIDER_STATE_DIR": str(directory),
        "TYRUM_PROVIDER_RUNTIME_DIR": str(directory),
        "TYRUM_PROVIDER_CONTROL_VERSIONS": "1-1",
        "GRPC_ENABLE_FORK_SUPPORT": "0",
    }
    environment |= variables or {}
    environment = {name: value for name, value in environment.items() if value}
    logs = directory / "log"
    with logs.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=sink,
            env=environment,
            cwd=ROOT,
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended already, which the test will look at
        process.stdin.write(token_line)
        process.stdin.flush()
    return Started(process, directory, path, _logs=logs)


async def stop(started: Started) -> None:
    """End it whatever its state, and prove that the lifeline suffices."""
    if started.channel is not None:
        await started.channel.close()
    hang_up(started)
    try:
        await until(lambda: started.process.poll() is not None)
    finally:
        started.process.kill()
        started.process.wait()


def hang_up(started: Started) -> None:
    """Close its standard input as a dying host does."""
    assert started.process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        started.process.stdin.close()


def answers(path: Path) -> bool:
    """Whether someone listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        try:
            attempt.connect(str(path))
        except OSError:
            return False
    return True


async def until(condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
    """Poll with a deadline."""
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            raise AssertionError(f"not within {seconds} s")
        await asyncio.sleep(0.01)


def handshake_request(**changes: Any) -> control_pb2.HandshakeRequest:
    """A valid handshake, or one with the given fields replaced."""
    contract = installed_contract("isolation")
    fields: dict[str, Any] = {
        "control_versions": {"min": 1, "max": 3},
        "contracts": [
            {"kind": "memory", "major": 1, "minor": 0, "digest": "sha256:" + "0" * 64},
            {
                "kind": contract.kind,
                "major": contract.major,
                "minor": contract.minor,
                "digest": contract.digest,
            },
        ],
        "instance_id": INSTANCE_ID,
        "nonce": NONCE,
        "host_version": "0.1.0",
    }
    return control_pb2.HandshakeRequest(**(fields | changes))


def configure_request(
    config: Mapping[str, Any] | bytes, secrets: Mapping[str, str], **changes: Any
) -> control_pb2.ConfigureRequest:
    """A Configure with the right digest, or with the given fields replaced."""
    raw = config if isinstance(config, bytes) else json.dumps(config).encode()
    fields: dict[str, Any] = {
        "config": raw,
        "config_digest": "sha256:" + hashlib.sha256(raw).hexdigest(),
        "secrets": secrets,
        "provider_name": "sample",
    }
    return control_pb2.ConfigureRequest(**(fields | changes))
