"""What happens to an admitted provider that dies, hangs or turns unhealthy, and when its host dies."""

import asyncio
import contextlib
import os
import resource
import signal
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.host.support import (
    DOUBLES,
    EAGER,
    FAST,
    Place,
    environment_of,
    eventually,
    own,
    processes_mentioning,
    spec,
)
from tyrum_provider_host import (
    CallError,
    Effect,
    ExitNotice,
    FileReference,
    Lifecycle,
    NeverStarted,
    NotFound,
    NotOffered,
    OperationContext,
    OutcomeUnknown,
    OutputStream,
    ProcessLimits,
    ProcessSpec,
    ProviderHost,
    ProviderUnavailable,
    RestartPolicy,
    StateName,
    StateValue,
    Workspace,
)
from tyrum_provider_host.supervision import CrashLedger, Quarantine, Retry, jittered

SETTLE = 30.0
AT_ONCE = 10.0
"""Far less than any deadline of the calls, far more than a busy machine takes to report a death."""
ROOT = Path(__file__).resolve().parents[2]
CONTEXT = OperationContext(
    binding_id="bind_" + "0" * 26,
    provider_id="dev.tyrum.conformance.good",
    profile="default",
    contract_major=1,
    actor="prin_" + "0" * 26,
)
COMMAND = ProcessSpec(
    program=FileReference("/bin/true"),
    argv=("true",),
    workspace=Workspace("/tmp", 1, 1),
    limits=ProcessLimits(wall_time=timedelta(seconds=5), output_bytes=1024, kill_grace=timedelta(seconds=1)),
)
OPERATION = "op_" + "0" * 26
PROCESS = "proc_" + "0" * 26


async def test_killed_provider_comes_back_as_a_new_instance(place: Place) -> None:
    """SIGKILL: the exit is announced, calls in flight fail at once, and a new instance has a new path."""
    notices: list[tuple[float, ExitNotice]] = []
    loop = asyncio.get_running_loop()
    host = ProviderHost(
        [own("slow_calls", name="good")],
        state_dir=place.state,
        runtime_dir=place.runtime,
        bounds=FAST,
        restarts=EAGER,
        on_exit=lambda notice: notices.append((loop.time(), notice)),
    )
    async with host:
        assert await host.wait_settled(SETTLE)
        first, pid = host.lease("good"), host.status("good").pid
        assert pid is not None
        path = environment_of(pid)["TYRUM_PROVIDER_SOCKET"]
        client = host.isolation("good")
        call = asyncio.create_task(
            client.start(CONTEXT, operation_id=OPERATION, process_id=PROCESS, spec=COMMAND)
        )
        with pytest.raises(NotFound):
            await client.get(CONTEXT, "proc_" + "1" * 26)

        killed = loop.time()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(OutcomeUnknown) as failure:
            await call
        assert failure.value.effect is Effect.UNKNOWN
        assert loop.time() - killed < AT_ONCE
        await eventually(lambda: notices)
        at, notice = notices[0]
        assert (notice.instance_id, notice.exit.signal, notice.expected) == (
            first.instance_id,
            signal.SIGKILL,
            False,
        )
        assert at - killed < AT_ONCE
        with pytest.raises(ProviderUnavailable):
            host.lease("good")
        with pytest.raises((ProviderUnavailable, OutcomeUnknown)):
            await client.get(CONTEXT, "proc_" + "1" * 26)

        assert await host.wait_until(lambda host: host.status("good").lifecycle is Lifecycle.ADMITTED, SETTLE)
        second, again = host.lease("good"), host.status("good").pid
        assert again is not None
        assert environment_of(again)["TYRUM_PROVIDER_SOCKET"] != path
        assert (second.provider_id, second.generation) == (first.provider_id, 2)
        assert second.instance_id != first.instance_id
        assert len(place.instances()) == 1
        assert host.status("good").recent_exits == 1


async def test_the_whole_group_ends_with_its_leader(place: Place) -> None:
    """When a provider dies, the processes of its group are ended too."""
    specs = [own("with_child", name="parent")]
    async with ProviderHost(specs, state_dir=place.state, runtime_dir=place.runtime, bounds=FAST) as host:
        assert await host.wait_settled(SETTLE)
        pid = host.status("parent").pid
        assert pid is not None
        directory = environment_of(pid)["TYRUM_PROVIDER_RUNTIME_DIR"]
        assert len(processes_mentioning(directory)) >= 2
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not processes_mentioning(directory))


async def test_crash_loop_ends_in_quarantine(place: Place) -> None:
    """A provider that is admitted and dies over and over is quarantined; being admitted forgives nothing.

    A defect of the host itself, here of who is told of an end, counts like any end and rejects nothing.
    """
    exits: list[ExitNotice] = []

    def told(notice: ExitNotice) -> None:
        exits.append(notice)
        if len(exits) == 1:
            raise RuntimeError("a defect")

    host = ProviderHost(
        [spec("good", name="dying")],
        state_dir=place.state,
        runtime_dir=place.runtime,
        bounds=FAST,
        restarts=replace(EAGER, crash_limit=3),
        on_exit=told,
    )
    async with host:
        for generation in (1, 2, 3):
            assert await host.wait_until(
                lambda host: host.status("dying").lifecycle is Lifecycle.ADMITTED, SETTLE
            )
            assert host.lease("dying").generation == generation
            pid = host.status("dying").pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            assert await host.wait_until(
                lambda host: host.status("dying").lifecycle is not Lifecycle.ADMITTED, SETTLE
            )
        assert await host.wait_until(
            lambda host: host.status("dying").lifecycle is Lifecycle.QUARANTINED, SETTLE
        )
        status = host.status("dying")
        assert [notice.generation for notice in exits] == [1, 2, 3]
        assert status.recent_exits == 3
        assert "3 unexpected ends" in status.reason
        assert "SIGKILL" in status.reason
        assert "operator:" in status.reason
        with pytest.raises(ProviderUnavailable, match="quarantined"):
            host.lease("dying")
    assert processes_mentioning(str(place.runtime)) == []


async def test_a_host_without_free_descriptors_suspends_and_recovers(place: Place) -> None:
    """What the host itself cannot check for a while never ends or rejects a provider."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    host = ProviderHost([spec("good")], state_dir=place.state, runtime_dir=place.runtime, bounds=FAST)
    taken: list[int] = []
    async with host:
        assert await host.wait_settled(SETTLE)
        lease = host.lease("good")
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, soft), hard))
        try:
            with contextlib.suppress(OSError):  # the limit is reached
                while True:
                    taken.append(os.dup(0))
            assert await host.wait_until(
                lambda host: host.status("good").lifecycle is not Lifecycle.ADMITTED, SETTLE
            )
            status = host.status("good")
            assert (status.lifecycle, "the host cannot check" in status.reason) == (Lifecycle.SUSPENDED, True)
        finally:
            for descriptor in taken:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert await host.wait_until(lambda host: host.status("good").lifecycle is Lifecycle.ADMITTED, SETTLE)
        assert host.lease("good") == lease


async def test_stopped_process_is_suspended_and_recovers(place: Place) -> None:
    """SIGSTOP: three missed checks suspend, nothing is declared dead or killed, and SIGCONT recovers it."""
    notices: list[ExitNotice] = []
    host = ProviderHost(
        [spec("good")],
        state_dir=place.state,
        runtime_dir=place.runtime,
        bounds=replace(FAST, health=0.5),
        on_exit=notices.append,
    )
    async with host:
        assert await host.wait_settled(SETTLE)
        pid, lease = host.status("good").pid, host.lease("good")
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            assert await host.wait_until(
                lambda host: host.status("good").lifecycle is Lifecycle.SUSPENDED, SETTLE
            )
            status = host.status("good")
            values = {state.name: state for state in status.states}
            assert values[StateName.HEALTHY].value is StateValue.FALSE
            assert "3 missed in a row" in values[StateName.HEALTHY].reason
            assert values[StateName.READY].value is StateValue.UNKNOWN
            with pytest.raises(ProviderUnavailable, match=r"suspended: .*healthy"):
                host.lease("good")
            host.isolation("good")
        finally:
            os.kill(pid, signal.SIGCONT)
        assert await host.wait_until(lambda host: host.status("good").lifecycle is Lifecycle.ADMITTED, SETTLE)
        assert host.lease("good") == lease
        assert notices == []


async def test_stolen_path_ends_the_instance(place: Place) -> None:
    """When another process takes over the path of an admitted instance, a new instance gets a new path."""
    notices: list[ExitNotice] = []
    host = ProviderHost(
        [spec("good")],
        state_dir=place.state,
        runtime_dir=place.runtime,
        bounds=FAST,
        restarts=EAGER,
        on_exit=notices.append,
    )
    async with host:
        assert await host.wait_settled(SETTLE)
        first, pid = host.lease("good"), host.status("good").pid
        assert pid is not None
        path = environment_of(pid)["TYRUM_PROVIDER_SOCKET"]
        thief = await asyncio.create_subprocess_exec(
            sys.executable,
            str(DOUBLES / "thief.py"),
            path,
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert await host.wait_until(
            lambda host: "another process listens" in host.status("good").reason, SETTLE
        )
        assert f"pid {thief.pid}" in host.status("good").reason
        assert await host.wait_until(lambda host: host.status("good").lifecycle is Lifecycle.ADMITTED, SETTLE)
        assert host.lease("good").instance_id != first.instance_id
        assert [notice.instance_id for notice in notices] == [first.instance_id]
        assert thief.stdin is not None
        thief.stdin.close()
        await thief.wait()


async def test_unready_provider_is_suspended_at_once(place: Place) -> None:
    """A provider that says it is not ready takes nothing new until it says otherwise."""
    switch = place.state.parent / "not-ready"
    host = ProviderHost(
        [own("flaky_health", str(switch), name="flaky")],
        state_dir=place.state,
        runtime_dir=place.runtime,
        bounds=FAST,
    )
    async with host:
        assert await host.wait_settled(SETTLE)
        host.lease("flaky")
        switch.touch()
        assert await host.wait_until(
            lambda host: host.status("flaky").lifecycle is Lifecycle.SUSPENDED, SETTLE
        )
        assert "ready: the probe answered not ready" in host.status("flaky").reason
        switch.unlink()
        assert await host.wait_until(
            lambda host: host.status("flaky").lifecycle is Lifecycle.ADMITTED, SETTLE
        )


async def test_provider_dies_with_its_gateway(place: Place) -> None:
    """SIGKILL of the gateway ends its providers through the lifeline; the next host sweeps what is left."""
    gateway = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.host.doubles.gateway",
        str(place.state),
        str(place.runtime),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    assert gateway.stdout is not None
    async with asyncio.timeout(SETTLE):
        provider = int(await gateway.stdout.readline())
    gateway.kill()
    await gateway.wait()
    await eventually(lambda: not environment_of(provider))
    assert len(place.instances()) == 1

    (place.runtime / "unrelated").mkdir()
    (place.runtime / "deadbeef").mkdir()
    async with ProviderHost([], state_dir=place.state, runtime_dir=place.runtime):
        assert place.instances() == ["deadbeef", "unrelated"]


async def test_living_hosts_are_not_swept(place: Place) -> None:
    """A second host with the same runtime directory leaves the first one's instances alone."""
    async with ProviderHost(
        [spec("good")], state_dir=place.state, runtime_dir=place.runtime, bounds=FAST
    ) as host:
        assert await host.wait_settled(SETTLE)
        before = place.instances()
        async with ProviderHost([], state_dir=place.state, runtime_dir=place.runtime):
            assert place.instances() == before
        assert host.status("good").lifecycle is Lifecycle.ADMITTED


async def test_isolation_calls_translate_answers(place: Place) -> None:
    """Every operation of the typed client returns a value or the class that says how to recover."""
    async with ProviderHost(
        [spec("good")], state_dir=place.state, runtime_dir=place.runtime, bounds=FAST
    ) as host:
        assert await host.wait_settled(SETTLE)
        client, unknown = host.isolation("good"), "proc_" + "1" * 26
        with pytest.raises(NotOffered) as refused:
            await client.start(CONTEXT, operation_id=OPERATION, process_id=PROCESS, spec=COMMAND)
        assert (refused.value.reason, refused.value.effect) == ("CAPABILITY_NOT_DECLARED", Effect.NONE)
        assert isinstance(await client.resolve_operation(CONTEXT, OPERATION), NeverStarted)
        for call in (
            client.wait(CONTEXT, unknown, timeout=0.1),
            client.get(CONTEXT, unknown),
            client.cancel(CONTEXT, unknown),
        ):
            with pytest.raises(NotFound):
                await call
        with pytest.raises(NotFound):
            async for _ in client.read_output(CONTEXT, unknown, OutputStream.STDOUT):
                pass
        await client.release(CONTEXT, unknown)
        assert (await client.list()).processes == ()
        assert (await client.posture()).claims


async def test_an_instance_that_answers_nothing_is_ended_and_replaced(place: Place) -> None:
    """A provider that hung stayed suspended until the gateway was restarted."""
    host = ProviderHost(
        [spec("good")],
        state_dir=place.state,
        runtime_dir=place.runtime,
        bounds=replace(FAST, health=0.3, unresponsive=1.0, term_grace=0.2),
        restarts=EAGER,
    )
    async with host:
        assert await host.wait_settled(SETTLE)
        first = host.status("good")
        assert first.pid is not None
        os.kill(first.pid, signal.SIGSTOP)

        def replaced(host: ProviderHost) -> bool:
            now = host.status("good")
            return now.generation > first.generation and now.lifecycle is Lifecycle.ADMITTED

        assert await host.wait_until(replaced, SETTLE)
        assert not processes_mentioning(first.instance_id)


async def test_a_first_start_is_put_off_while_the_provider_says_that_it_passes(place: Place) -> None:
    """A first start was refused for ever while another process still held the provider's state."""
    away = place.state.parent / "away"
    away.touch()
    host = ProviderHost(
        [own("busy_at_first", str(away.parent), name="busy")],
        state_dir=place.state,
        runtime_dir=place.runtime,
        bounds=FAST,
        restarts=RestartPolicy(initial_delay=0.05, max_delay=0.05, crash_limit=2),
    )
    async with host:
        assert await host.wait_until(lambda host: host.status("busy").generation > 3, SETTLE)
        assert host.status("busy").recent_exits == 0, "that is no crash"
        away.unlink()
        assert await host.wait_until(lambda host: host.status("busy").lifecycle is Lifecycle.ADMITTED, SETTLE)


async def test_a_restart_begins_anew_from_quarantine_and_from_life(place: Place) -> None:
    """Only a restart of the gateway brought a quarantined provider back."""
    host = ProviderHost(
        [spec("good")],
        state_dir=place.state,
        runtime_dir=place.runtime,
        bounds=FAST,
        restarts=replace(EAGER, crash_limit=1),
    )
    async with host:
        assert await host.wait_settled(SETTLE)
        pid = host.status("good").pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert await host.wait_until(
            lambda host: host.status("good").lifecycle is Lifecycle.QUARANTINED, SETTLE
        )
        assert "tyrum providers restart good" in host.status("good").reason
        for generation in (2, 3):
            host.restart("good")
            assert await host.wait_until(
                lambda host, wanted=generation: (  # type: ignore[misc]
                    host.status("good").generation == wanted
                    and host.status("good").lifecycle is Lifecycle.ADMITTED
                ),
                SETTLE,
            )
            assert host.status("good").recent_exits == 0


async def test_own_cancellation_passes_through(place: Place) -> None:
    """Cancelling the caller's task cancels the call; a deadline leaves the outcome unknown."""
    async with ProviderHost(
        [own("slow_calls", name="good")], state_dir=place.state, runtime_dir=place.runtime, bounds=FAST
    ) as host:
        assert await host.wait_settled(SETTLE)
        client = host.isolation("good")
        call = asyncio.create_task(
            client.start(CONTEXT, operation_id=OPERATION, process_id=PROCESS, spec=COMMAND)
        )
        await asyncio.wait({call}, timeout=0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(CallError) as late:
            await client.start(CONTEXT, operation_id=OPERATION, process_id=PROCESS, spec=COMMAND, timeout=0.1)
        assert isinstance(late.value, OutcomeUnknown)
        assert late.value.code == "DEADLINE_EXCEEDED"


POLICY = RestartPolicy()


def test_back_off_doubles_up_to_its_cap() -> None:
    """Delays double with each end and stop at the cap; jitter stays within its share."""
    ledger, delays = CrashLedger(), []
    for _ in range(12):
        ledger, decision = ledger.ended(0.0, replace(POLICY, crash_limit=100))
        assert isinstance(decision, Retry)
        delays.append(decision.delay)
    assert delays[:8] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert max(delays) == 30.0
    assert [jittered(10.0, POLICY, random=value) for value in (0.0, 0.5, 1.0)] == [8.0, 10.0, 12.0]


def test_time_alone_forgives_no_crash() -> None:
    """Neither back-off nor respawning nor being unhealthy shortens the way into quarantine."""
    ledger: CrashLedger = CrashLedger()
    for number in range(5):
        now = number * 10_000.0
        ledger = ledger.became_healthy(now).became_unhealthy(now + 1.0)
        ledger, decision = ledger.ended(now + 9_000.0, POLICY)
    assert decision == Quarantine(5)


def test_healthy_time_forgives() -> None:
    """Five minutes of healthy time after a crash forgive it."""
    ledger = CrashLedger()
    for number in range(20):
        now = number * 1_000.0
        ledger, decision = ledger.became_healthy(now).ended(now + 301.0, POLICY)
        assert decision == Retry(0.25)
