"""The real provider as a subprocess, with a host's side just large enough to configure and call it."""

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import secrets
import signal
import socket
import string
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio
import psutil
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2

from tyrum.isolation.v1 import isolation_pb2 as pb
from tyrum.isolation.v1 import isolation_pb2_grpc
from tyrum.provider.v1 import binding_pb2, control_pb2, control_pb2_grpc
from tyrum_local_spawn.provider import PROVIDER_ID
from tyrum_provider_kit.proof import Credentials

DEADLINE = 25.0
"""Seconds that a busy machine may need for what is done at once; commands that stay are ended after 30."""


def new_id(prefix: str) -> str:
    """Return a fresh id of the given kind."""
    return f"{prefix}_" + "".join(secrets.choice(string.digits + string.ascii_lowercase) for _ in range(26))


def context(**changes: Any) -> binding_pb2.OperationContext:
    """Return a valid operation context, with fields of its binding changed."""
    values: dict[str, Any] = {
        "binding_id": new_id("bind"),
        "provider_id": PROVIDER_ID,
        "profile": "default",
        "contract_major": 1,
    }
    return binding_pb2.OperationContext(
        binding=binding_pb2.Binding(**{**values, **changes}), actor="prin_test"
    )


def seconds(value: float) -> duration_pb2.Duration:
    """Return a Duration."""
    return duration_pb2.Duration(seconds=int(value), nanos=round((value - int(value)) * 1e9))


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """Return the reason of an error, which must carry exactly one ErrorInfo of the right domain."""
    return str(info_of(error).reason)


def info_of(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    """Return the one ErrorInfo of an error."""
    details = next(
        value for key, value in error.trailing_metadata() or () if key == "grpc-status-details-bin"
    )
    assert isinstance(details, bytes)
    found = []
    for detail in status_pb2.Status.FromString(details).details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            found.append(info)
    assert len(found) == 1, f"{len(found)} ErrorInfo in {error}"
    return found[0]


async def refused(call: Any) -> str:
    """Await a call that must fail, and return its reason."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return reason_of(error)
    raise AssertionError(f"was answered: {answer}")


async def until(holds: Callable[[], object], what: str, timeout: float = DEADLINE) -> None:
    """Poll until a condition holds."""
    give_up = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < give_up, f"{what} did not come within {timeout:g} s"
        await asyncio.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Output:
    """What a ReadOutput yielded."""

    data: bytes
    first_offset: int | None
    dropped: int
    eofs: int
    chunks: int
    largest: int


@dataclass(slots=True)
class Provider:
    """One instance, from start to end."""

    root: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    process: asyncio.subprocess.Process = field(init=False)
    channel: grpc.aio.Channel = field(init=False)
    control: control_pb2_grpc.ProviderControlServiceStub = field(init=False)
    isolation: isolation_pb2_grpc.IsolationServiceStub = field(init=False)
    bearer: str = field(init=False)
    log: Path = field(init=False)

    @property
    def state_dir(self) -> Path:
        """The state directory, which outlives instances."""
        return self.root / "state"

    @property
    def runs(self) -> Path:
        """Where the records are."""
        return self.state_dir / "runs"

    @property
    def workspace(self) -> Path:
        """The workspace that specs name by default."""
        return self.root / "workspace"

    @classmethod
    @contextlib.asynccontextmanager
    async def started(
        cls, root: Path, config: Mapping[str, Any] | None = None, *, configure: bool = True
    ) -> AsyncIterator[Self]:
        """Run an instance for the length of the block; commands run as the gateway's user by default."""
        provider = cls(root, {"run_as": "gateway_user"} if config is None else config)
        await provider.launch()
        try:
            if configure:
                await provider.configure()
            yield provider
        finally:
            await provider.stop()

    async def launch(self) -> None:
        """Start a process; the state directory may be that of an earlier one."""
        runtime = self.root / f"run-{secrets.token_hex(4)}"
        for directory in (self.state_dir, runtime, self.workspace):
            directory.mkdir(mode=0o700, exist_ok=True)
        path = runtime / "s"
        token = secrets.token_bytes(32)
        self.bearer = Credentials.derive(token).bearer
        self.log = self.root / "provider.log"
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tyrum_local_spawn.main",
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={
                    "TYRUM_PROVIDER_SOCKET": str(path),
                    "TYRUM_PROVIDER_INSTANCE_ID": new_id("inst"),
                    "TYRUM_PROVIDER_STATE_DIR": str(self.state_dir),
                    "TYRUM_PROVIDER_RUNTIME_DIR": str(runtime),
                    "TYRUM_PROVIDER_CONTROL_VERSIONS": "1-1",
                    "PROVIDER_CANARY": "environment-canary-4711",
                },
            )
        assert self.process.stdin is not None
        self.process.stdin.write(base64.urlsafe_b64encode(token).rstrip(b"=") + b"\n")
        await self.process.stdin.drain()
        await until(lambda: _listens(path) or self.process.returncode is not None, "the socket")
        assert self.process.returncode is None, self.log.read_text()
        options = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))
        self.channel = grpc.aio.insecure_channel(
            f"unix:{path}", options=options, interceptors=[_Unary(self.bearer), _Stream(self.bearer)]
        )
        self.control = control_pb2_grpc.ProviderControlServiceStub(self.channel)
        self.isolation = isolation_pb2_grpc.IsolationServiceStub(self.channel)

    async def configure(self) -> None:
        """Apply the configuration."""
        raw = json.dumps(self.config).encode()
        await self.control.Configure(
            control_pb2.ConfigureRequest(
                config=raw,
                config_digest="sha256:" + hashlib.sha256(raw).hexdigest(),
                provider_name="under-test",
            ),
            timeout=DEADLINE,
        )

    async def stop(self) -> int:
        """End the instance as a host does that closes the lifeline; harmless when it has ended."""
        await self.channel.close()
        if self.process.returncode is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                async with asyncio.timeout(DEADLINE):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()
                raise
        return self.process.returncode or 0

    async def kill(self) -> None:
        """SIGKILL the instance."""
        self.process.kill()
        await self.process.wait()
        await self.channel.close()

    def spec(self, *argv: str, **changes: Any) -> pb.ProcessSpec:
        """Return a spec that runs `argv` in the workspace."""
        status = self.workspace.stat()
        values: dict[str, Any] = {
            "program": pb.FileReference(path=argv[0]),
            "argv": argv,
            "env": {"PATH": "/usr/bin:/bin"},
            "workspace": pb.Workspace(path=str(self.workspace), device=status.st_dev, inode=status.st_ino),
            "limits": limits(),
        }
        return pb.ProcessSpec(**{**values, **changes})

    def shell(self, script: str, **changes: Any) -> pb.ProcessSpec:
        """Return a spec that runs a script with sh."""
        return self.spec("/bin/sh", "-c", script, **changes)

    def python(self, script: str, *args: str, **changes: Any) -> pb.ProcessSpec:
        """Return a spec that runs a script with this interpreter, isolated."""
        return self.spec(sys.executable, "-I", "-S", "-c", script, *args, **changes)

    async def start(
        self,
        spec: pb.ProcessSpec,
        *,
        operation: str | None = None,
        process: str | None = None,
        linger: float | None = None,
    ) -> pb.Process:
        """Start a process under fresh ids unless they are given."""
        request = pb.StartProcessRequest(
            context=context(),
            operation_id=operation or new_id("op"),
            process_id=process or new_id("proc"),
            spec=spec,
            linger=None if linger is None else seconds(linger),
        )
        return (await self.isolation.StartProcess(request, timeout=DEADLINE)).process

    async def wait(self, process: pb.Process | str, timeout: float = DEADLINE) -> pb.Process:
        """Wait for the end."""
        request = pb.WaitProcessRequest(context=context(), process_id=_id(process), timeout=seconds(timeout))
        return (await self.isolation.WaitProcess(request, timeout=timeout + DEADLINE)).process

    async def run(self, spec: pb.ProcessSpec) -> pb.ProcessResult:
        """Start, wait, and return the result."""
        return (await self.wait(await self.start(spec))).result

    async def run_as(self, operation: str, spec: pb.ProcessSpec) -> pb.ProcessResult:
        """Start under a given operation id, wait, and return the result."""
        return (await self.wait(await self.start(spec, operation=operation))).result

    async def get(self, process: pb.Process | str) -> pb.Process:
        """Return the present state."""
        request = pb.GetProcessRequest(context=context(), process_id=_id(process))
        return (await self.isolation.GetProcess(request, timeout=DEADLINE)).process

    async def resolve(self, operation: str) -> pb.ResolveOperationResponse:
        """Ask what became of an operation."""
        request = pb.ResolveOperationRequest(context=context(), operation_id=operation)
        return await self.isolation.ResolveOperation(request, timeout=DEADLINE)

    async def cancel(
        self, process: pb.Process | str, grace: float | None = None
    ) -> pb.ProcessState.ValueType:
        """Ask for the end and return the state at the acknowledgement."""
        request = pb.CancelProcessRequest(
            context=context(), process_id=_id(process), grace=None if grace is None else seconds(grace)
        )
        return (await self.isolation.CancelProcess(request, timeout=DEADLINE)).state

    async def release(self, process: pb.Process | str) -> None:
        """Free an ended process."""
        request = pb.ReleaseProcessRequest(context=context(), process_id=_id(process))
        await self.isolation.ReleaseProcess(request, timeout=DEADLINE)

    async def chunks(
        self,
        process: pb.Process | str,
        offset: int = 0,
        *,
        stream: pb.OutputStream.ValueType = pb.OUTPUT_STREAM_STDOUT,
        follow: bool = False,
    ) -> AsyncGenerator[pb.ReadOutputResponse, None]:
        """Yield chunks, after checking that they join up."""
        request = pb.ReadOutputRequest(
            context=context(), process_id=_id(process), stream=stream, offset=offset, follow=follow
        )
        position = offset
        async for chunk in self.isolation.ReadOutput(request, timeout=DEADLINE):
            assert chunk.offset == position + chunk.dropped_before, "chunks leave a hole or overlap"
            assert len(chunk.data) <= 256 * 1024
            position = chunk.offset + len(chunk.data)
            yield chunk

    async def read(self, process: pb.Process | str, offset: int = 0, **options: Any) -> Output:
        """Read a stream to the end of the call."""
        data = bytearray()
        first: int | None = None
        dropped = eofs = count = largest = 0
        async for chunk in self.chunks(process, offset, **options):
            assert not eofs, "a chunk follows eof"
            if chunk.data and first is None:
                first = chunk.offset
            data += chunk.data
            dropped += chunk.dropped_before
            eofs += chunk.eof
            count += 1
            largest = max(largest, len(chunk.data))
        return Output(bytes(data), first, dropped, eofs, count, largest)

    def spawner(self) -> psutil.Process:
        """Return the spawner."""
        (child,) = psutil.Process(self.process.pid).children()
        return child

    def supervisor_of(self, pid: int) -> psutil.Process:
        """Return the supervisor of a command."""
        parent = psutil.Process(pid).parent()
        assert parent is not None
        return parent


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        try:
            attempt.connect(str(path))
        except OSError:
            return False
    return True


class _Unary(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, bearer: str) -> None:
        self._bearer = bearer

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return await continuation(_with_bearer(details, self._bearer), request)


class _Stream(grpc.aio.UnaryStreamClientInterceptor):
    def __init__(self, bearer: str) -> None:
        self._bearer = bearer

    async def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return await continuation(_with_bearer(details, self._bearer), request)


def _with_bearer(details: grpc.aio.ClientCallDetails, bearer: str) -> grpc.aio.ClientCallDetails:
    metadata = grpc.aio.Metadata(*(details.metadata or ()))
    metadata.add("authorization", f"Bearer {bearer}")
    return grpc.aio.ClientCallDetails(
        details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
    )


def limits(wall: float = 30, output: int = 1 << 40, grace: float = 1) -> pb.ProcessLimits:
    """Return limits: seconds, bytes, seconds."""
    return pb.ProcessLimits(wall_time=seconds(wall), output_bytes=output, kill_grace=seconds(grace))


def gone(pid: int) -> bool:
    """Tell whether a process has ended (a zombie has)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def kill_quietly(pid: int) -> None:
    """Clean up after a test that failed."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _id(process: pb.Process | str) -> str:
    return process if isinstance(process, str) else process.process_id
