"""Limits hold, runs do not mix, and nothing accumulates."""

import asyncio
from pathlib import Path

import grpc.aio
import psutil
import pytest
from google.rpc import error_details_pb2, status_pb2

from tests.local_spawn.driver import DEADLINE, Provider, limits, new_id, reason_of, refused, until
from tyrum.isolation.v1 import isolation_pb2 as pb
from tyrum.provider.v1 import control_pb2
from tyrum_local_spawn.supervision.spawner import IDLE_SUPERVISORS

MIB = 1024 * 1024


async def test_fifty_runs_at_once_do_not_mix(tmp_path: Path) -> None:
    """Fifty concurrent commands each see their own environment and get their own output and result."""
    async with Provider.started(tmp_path) as provider:
        script = 'i=0; while [ $i -lt 200 ]; do echo "$ID $i"; i=$((i+1)); done; exit $CODE'

        async def one(number: int) -> None:
            spec = provider.shell(script, env={"ID": f"run-{number}", "CODE": str(number)})
            process = await provider.wait(await provider.start(spec))
            assert process.result.exit_code == number
            output = await provider.read(process)
            assert output.data.decode() == "".join(f"run-{number} {i}\n" for i in range(200))

        await asyncio.gather(*(one(number) for number in range(50)))
        listed = await provider.isolation.ListProcesses(pb.ListProcessesRequest(page_size=20))
        ids = [process.process_id for process in listed.processes]
        while listed.next_page_token:
            listed = await provider.isolation.ListProcesses(
                pb.ListProcessesRequest(page_size=20, page_token=listed.next_page_token)
            )
            ids += [process.process_id for process in listed.processes]
        assert len(ids) == 50
        assert ids == sorted(set(ids))
        assert all(not process.result.stdout.head for process in listed.processes)


async def test_the_concurrency_limit_is_kept(tmp_path: Path) -> None:
    """One run too many is told when to come back, and fits in once a place is free."""
    async with Provider.started(tmp_path, {"run_as": "gateway_user", "max_concurrent": 2}) as provider:
        spec = provider.shell("exec sleep 60")
        first, _ = await asyncio.gather(provider.start(spec), provider.start(spec))
        operation = new_id("op")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await provider.start(spec, operation=operation)
        assert reason_of(caught.value) == "CONCURRENCY_LIMIT"
        assert _retry_info(caught.value).retry_delay.ToMilliseconds() > 0
        await provider.cancel(first, grace=0)
        await provider.wait(first)
        assert (await provider.start(spec, operation=operation)).state == pb.PROCESS_STATE_RUNNING


async def test_the_spool_total_is_kept(tmp_path: Path) -> None:
    """A start that the spools leave no room for is refused; releasing makes room."""
    config = {"run_as": "gateway_user", "spool_bytes_per_stream": MIB, "spool_bytes_total": 3 * MIB}
    async with Provider.started(tmp_path, config) as provider:
        big = provider.shell("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2")
        process = await provider.wait(await provider.start(big))
        assert process.result.stdout.dropped_bytes == 3_000_000 - MIB
        assert await refused(provider.start(big)) == "QUOTA"
        await provider.release(process)
        assert (await provider.run(big)).exit_code == 0


async def test_a_hundred_cycles_leave_nothing(tmp_path: Path) -> None:
    """Start, wait, read and release a hundred times: what one in ten of them would leave is not there.

    Replacing an idle supervisor is under way at any moment, so what is held is compared with room for one
    of them; it was compared exactly once, and failed when the first count fell into a replacement.
    """
    async with Provider.started(tmp_path) as provider:
        me = psutil.Process(provider.process.pid)

        def idle() -> bool:
            supervisors = provider.spawner().children(recursive=True)
            held = [path for path in provider.runs.iterdir() if path.is_dir()]
            return len(supervisors) == len(held) == IDLE_SUPERVISORS

        def occupied() -> tuple[int, int, int]:
            return me.num_fds(), provider.spawner().num_fds(), len(me.children(recursive=True))

        async def cycle() -> None:
            process = await provider.wait(await provider.start(provider.shell("echo x")))
            assert (await provider.read(process)).data == b"x\n"
            await provider.release(process)

        for _ in range(10):
            await cycle()
        await until(idle, "rest")
        before = occupied()
        memory, threads = me.memory_info().rss, me.num_threads()
        for _ in range(100):
            await cycle()
        most = tuple(count + 10 for count in before)
        await until(
            lambda: idle() and all(now < limit for now, limit in zip(occupied(), most, strict=True)),
            f"less than ten more than before, {before}",
        )
        assert me.memory_info().rss - memory < 8 * MIB
        assert me.num_threads() - threads < 50, "the pools fill as they like, up to their sizes"


async def test_probe_answers_while_everything_is_taken(tmp_path: Path) -> None:
    """Probe answers while the declared places are full of floods."""
    async with Provider.started(tmp_path, {"run_as": "gateway_user", "max_concurrent": 4}) as provider:
        for _ in range(4):
            await provider.start(provider.shell("exec cat /dev/zero", limits=limits(wall=100)))
        for _ in range(5):
            probe = await provider.control.Probe(control_pb2.ProbeRequest(), timeout=DEADLINE)
            assert (probe.ready, probe.in_flight) == (True, 4)


def _retry_info(error: grpc.aio.AioRpcError) -> error_details_pb2.RetryInfo:
    details = next(
        value for key, value in error.trailing_metadata() or () if key == "grpc-status-details-bin"
    )
    assert isinstance(details, bytes)
    info = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(info) for detail in status_pb2.Status.FromString(details).details)
    return info
