"""How a provider process ends: by the host's word, by SIGTERM, by the host's death, and when it hangs."""

import asyncio
import json
import signal
from collections.abc import Callable

import grpc
import pytest
from google.protobuf import duration_pb2
from grpc_health.v1 import health_pb2

from tests.kit.processes import (
    BEARER,
    CREDENTIALS,
    DEADLINE,
    SECRET,
    TOKEN_LINE,
    Started,
    handshake_request,
    hang_up,
    refusal,
    until,
)
from tyrum.isolation.v1 import isolation_pb2
from tyrum.provider.v1 import control_pb2


async def test_host_death_ends_the_provider(configured: Started) -> None:
    """At the end of standard input the provider exits orderly and removes its socket."""
    hang_up(configured)
    assert await configured.ended() == 0
    assert not configured.socket.exists()
    assert "the host is gone" in configured.log()


async def test_host_death_ends_a_provider_that_can_start_no_thread(launch: Callable[..., Started]) -> None:
    """The lifeline needs nothing more once it has ended, not even a thread."""
    program = (
        "import sys, threading\n"
        "from tests.kit.sample_provider import SampleProvider\n"
        "from tyrum_provider_kit import run\n"
        'def refused(self): raise RuntimeError("can\'t start new thread")\n'
        "threading.Timer.start = refused\n"
        "sys.exit(run(SampleProvider()))\n"
    )
    started = await launch("-c", program).listening()
    hang_up(started)
    assert await started.ended() == 0


async def test_host_death_ends_a_hanging_provider(sample: Started) -> None:
    """Even when the provider blocks its event loop for ever, it gives itself 4.5 s after its host's end."""
    await sample.configure(mode="hangs_in_shutdown")
    hang_up(sample)
    assert await sample.ended() == 70
    assert "did not stop within 4.5 s" in sample.log()
    assert not sample.socket.exists()


async def test_sigterm_drains_and_ends(configured: Started) -> None:
    """SIGTERM ends the provider with status 0; open calls get their answer first."""
    call = configured.domain.StartProcess(
        isolation_pb2.StartProcessRequest(operation_id="wait"), timeout=DEADLINE, metadata=BEARER
    )
    running = asyncio.create_task(_await(call))
    await _busy(configured)
    configured.process.send_signal(signal.SIGTERM)
    await until(lambda: "SIGTERM" in configured.log())
    late = isolation_pb2.StartProcessRequest()
    refused = await refusal(configured.domain.StartProcess(late, timeout=DEADLINE, metadata=BEARER))
    assert refused.reason == "DRAINING"
    await configured.domain.CancelProcess(
        isolation_pb2.CancelProcessRequest(), timeout=DEADLINE, metadata=BEARER
    )
    await running
    assert await configured.ended() == 0
    assert not configured.socket.exists()


async def test_sigint_is_the_hosts_alone(configured: Started) -> None:
    """A terminal's Ctrl-C does not end providers: their host decides."""
    configured.process.send_signal(signal.SIGINT)
    for _ in range(5):
        assert (await configured.control.Handshake(handshake_request(), timeout=DEADLINE)).proof
    assert configured.process.poll() is None


async def test_shutdown_acknowledges_and_ends(configured: Started) -> None:
    """Shutdown answers at once and the process exits 0, although a health watch is still open."""
    watch = configured.health_stub.Watch(health_pb2.HealthCheckRequest(), timeout=DEADLINE)
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    request = control_pb2.ShutdownRequest(grace=duration_pb2.Duration(seconds=30))
    await configured.control.Shutdown(request, timeout=DEADLINE, metadata=BEARER)
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert await configured.ended() == 0
    watch.cancel()


async def test_shutdown_cancels_after_the_grace(configured: Started) -> None:
    """Operations that outlast the grace are cancelled, and the process still exits 0."""
    call = configured.domain.StartProcess(
        isolation_pb2.StartProcessRequest(operation_id="wait"), timeout=DEADLINE, metadata=BEARER
    )
    running = asyncio.create_task(_await(call))
    await _busy(configured)
    grace = duration_pb2.Duration(nanos=300_000_000)
    await configured.control.Shutdown(
        control_pb2.ShutdownRequest(grace=grace), timeout=DEADLINE, metadata=BEARER
    )
    assert await configured.ended() == 0
    with pytest.raises(grpc.aio.AioRpcError):
        await running


async def test_later_reasons_hurry_the_end(configured: Started) -> None:
    """When the host dies during a patient shutdown, the rest of its grace is not waited for."""
    call = configured.domain.StartProcess(
        isolation_pb2.StartProcessRequest(operation_id="wait"), timeout=DEADLINE, metadata=BEARER
    )
    running = asyncio.create_task(_await(call))
    await _busy(configured)
    grace = duration_pb2.Duration(seconds=30)
    await configured.control.Shutdown(
        control_pb2.ShutdownRequest(grace=grace), timeout=DEADLINE, metadata=BEARER
    )
    hang_up(configured)
    await configured.ended()
    assert not configured.socket.exists()
    with pytest.raises(grpc.aio.AioRpcError):
        await running


async def test_failed_end_is_told_by_the_status(sample: Started) -> None:
    """A provider that could not end its work still leaves in time, with status 1 and the cause in its log."""
    await sample.configure(mode="fails_in_shutdown")
    await sample.control.Shutdown(control_pb2.ShutdownRequest(), timeout=DEADLINE, metadata=BEARER)
    assert await sample.ended() == 1
    assert "could not let go" in sample.log()


async def test_shutdown_before_configure(sample: Started) -> None:
    """A provider that was never configured ends just as well."""
    await sample.control.Shutdown(control_pb2.ShutdownRequest(), timeout=DEADLINE, metadata=BEARER)
    assert await sample.ended() == 0


async def test_logs_hold_no_secret(configured: Started) -> None:
    """Token, bearer and secrets stand in no log, which is JSON line by line."""
    await refusal(
        configured.domain.StartProcess(
            isolation_pb2.StartProcessRequest(operation_id="explode"), timeout=DEADLINE, metadata=BEARER
        )
    )
    log = configured.log()
    for line in log.splitlines():
        assert json.loads(line).keys() >= {"time", "level", "logger", "message"}
    for secret in (SECRET, TOKEN_LINE.decode().strip(), CREDENTIALS.bearer):
        assert secret not in log
    assert "[concealed]" in log


async def test_children_get_no_lifeline(launch: Callable[..., Started]) -> None:
    """What a provider starts has /dev/null as its standard input and no copy of the lifeline."""
    program = (
        "import os, sys, subprocess\n"
        "from tests.kit.sample_provider import SampleProvider\n"
        "from tyrum_provider_kit import run\n"
        "class P(SampleProvider):\n"
        "    async def configure(self, *a):\n"
        "        print(os.getenv('GRPC_ENABLE_FORK_SUPPORT'), flush=True)\n"
        "        subprocess.run(['ls', '-l', '/proc/self/fd'])\n"
        "sys.exit(run(P()))\n"
    )
    started = await launch("-c", program).listening()
    await started.configure()
    listing = [line for line in started.log().splitlines() if " -> " in line]
    assert any("0 -> /dev/null" in line for line in listing)
    assert not any("pipe:" in line for line in listing)
    assert "\n0\n" in "\n" + started.log()


async def test_grpc_imported_first_is_started_once_more(launch: Callable[..., Started]) -> None:
    """A program that imports gRPC before the kit runs without fork support all the same, as the same pid."""
    program = (
        "import grpc, os, sys\n"
        "sys.stderr.write(f'start {os.getpid()} {os.getenv(\"GRPC_ENABLE_FORK_SUPPORT\")}\\n')\n"
        "from tests.kit.sample_provider import SampleProvider\n"
        "from tyrum_provider_kit import run\n"
        "sys.exit(run(SampleProvider()))\n"
    )
    started = await launch("-c", program, variables={"GRPC_ENABLE_FORK_SUPPORT": ""}).listening()
    starts = [line.split() for line in started.log().splitlines() if line.startswith("start")]
    assert starts == [["start", str(started.process.pid), value] for value in ("None", "0")]


async def _await(call: object) -> object:
    return await call  # type: ignore[misc] # grpc calls are awaitable


async def _busy(started: Started) -> None:
    async with asyncio.timeout(DEADLINE):
        while True:
            probe = await started.control.Probe(control_pb2.ProbeRequest(), timeout=DEADLINE, metadata=BEARER)
            if probe.in_flight > 5:
                return
