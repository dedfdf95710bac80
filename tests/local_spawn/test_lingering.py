"""A start that waits for the end says the same as a start and a wait, in one call."""

import asyncio
import time

import grpc.aio
import pytest

from tests.local_spawn.driver import Provider, context, new_id, reason_of, seconds, until
from tyrum.isolation.v1 import isolation_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_short_command_takes_one_call(provider: Provider) -> None:
    """A start that lingers gives what a wait gives, evidence included, as soon as the run ended."""
    begun = time.monotonic()
    ended = await provider.start(provider.shell("echo out; echo err >&2; exit 3"), linger=10)
    assert time.monotonic() - begun < 10
    assert ended.state == pb.PROCESS_STATE_ENDED
    assert (ended.result.exit_code, ended.result.stdout.head, ended.result.stderr.head) == (
        3,
        b"out\n",
        b"err\n",
    )
    assert ended == await provider.wait(ended)
    assert (provider.runs / ended.operation_id / "exit").exists()


async def test_a_long_command_is_answered_after_the_linger(provider: Provider) -> None:
    """What does not end in time is reported as running and goes on."""
    gate = provider.workspace / new_id("gate")
    script = f"while [ ! -e {gate} ]; do sleep 0.01; done; echo done"
    begun = time.monotonic()
    process = await provider.start(provider.shell(script), linger=0.2)
    assert time.monotonic() - begun >= 0.2
    assert process.state == pb.PROCESS_STATE_RUNNING
    gate.touch()
    assert (await provider.wait(process)).result.stdout.head == b"done\n"


async def test_an_equal_request_may_linger_differently(provider: Provider) -> None:
    """How long a call waits is no part of what an operation stands for: both calls see one run end."""
    operation, process = new_id("op"), new_id("proc")
    count = provider.workspace / new_id("count")
    gate = provider.workspace / new_id("gate")
    spec = provider.shell(f"echo ran >> {count}; while [ ! -e {gate} ]; do sleep 0.01; done")
    lingering = asyncio.ensure_future(provider.start(spec, operation=operation, process=process, linger=10))
    running = await provider.start(spec, operation=operation, process=process)
    gate.touch()
    ended = await lingering
    assert (running.state, ended.state) == (pb.PROCESS_STATE_RUNNING, pb.PROCESS_STATE_ENDED)
    assert count.read_text() == "ran\n"


async def test_a_refusal_does_not_linger(provider: Provider) -> None:
    """What cannot start is refused as soon as that is known."""
    begun = time.monotonic()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await provider.start(provider.spec("/no/such/program"), linger=10)
    assert reason_of(caught.value) == "PROGRAM_NOT_EXECUTABLE"
    assert time.monotonic() - begun < 10


async def test_leaving_a_lingering_call_leaves_the_command_alone(provider: Provider) -> None:
    """Cancelling the call after the command began does not touch it; CancelProcess meets it."""
    there = provider.workspace / new_id("there")
    operation, process = new_id("op"), new_id("proc")
    call = provider.isolation.StartProcess(
        pb.StartProcessRequest(
            context=context(),
            operation_id=operation,
            process_id=process,
            spec=provider.shell(f"touch {there}; sleep 0.5; echo went on"),
            linger=seconds(10),
        ),
        timeout=20,
    )
    await until(there.exists, "the command")
    call.cancel()
    assert (await provider.wait(process)).result.stdout.head == b"went on\n"


async def test_a_cancelled_process_ends_the_linger(provider: Provider) -> None:
    """CancelProcess is answered at once while a start lingers, whose answer then tells the cause."""
    there = provider.workspace / new_id("there")
    process = new_id("proc")
    lingering = asyncio.ensure_future(
        provider.start(provider.shell(f"touch {there}; sleep 30"), process=process, linger=10)
    )
    await until(there.exists, "the command")
    await provider.cancel(process, grace=0)
    assert (await lingering).result.cause == pb.END_CAUSE_CANCELLED
