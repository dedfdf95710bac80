"""Without room for its record nothing executes, and nothing that did is denied."""

import contextlib
import hashlib
import os
import resource
from pathlib import Path

import psutil

from tests.local_spawn.driver import Provider, new_id, refused, until
from tests.support.small_disk import mounted
from tyrum.isolation.v1 import isolation_pb2 as pb

MIB = 1024 * 1024


def _limit(provider: Provider, size: int) -> None:
    """Let none of the processes that write records make a file larger than this.

    The spawner comes first: whoever is forked while the others are listed has its limit from it.
    """
    spawner = provider.spawner()
    _limit_one(spawner, size)
    for process in spawner.children(recursive=True):
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            _limit_one(process, size)


def _limit_one(process: psutil.Process, size: int) -> None:
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, hard))


async def test_a_command_whose_record_cannot_be_written_does_not_run(tmp_path: Path) -> None:
    """The journal comes first: when the write fails the command has not executed, and never will."""
    async with Provider.started(tmp_path) as provider:
        assert (await provider.run(provider.shell("exit 3"))).exit_code == 3
        ran, operation = provider.workspace / "ran", new_id("op")
        spec = provider.shell(f"echo ran > {ran}")
        _limit(provider, 0)
        assert await refused(provider.start(spec, operation=operation)) == "QUOTA"
        _limit(provider, resource.RLIM_INFINITY)
        assert (await provider.resolve(operation)).HasField("never_started")
        assert not ran.exists()
        assert (await provider.run(spec)).exit_code == 0
        assert ran.exists()


async def test_a_disk_that_gets_full_costs_output_and_never_the_outcome(tmp_path: Path) -> None:
    """What is spooled makes room for the record; where that is not enough, the evidence stays out of it.

    So it is for a run whose supervisor was killed: its record is the provider's to write.
    """
    with mounted(tmp_path / "state", 8) as disk:
        async with Provider.started(tmp_path) as provider:
            for number, room in enumerate((384 * 1024, 0) if disk.mounted else (0,)):
                go = provider.workspace / f"go{number}"
                script = f"while [ ! -e {go} ]; do sleep 0.01; done; head -c 300000 /dev/zero; exit 3"
                process = await provider.start(provider.shell(script))
                if disk.mounted:
                    disk.fill(provider.runs)
                    ballast = disk.path / "ballast"
                    os.truncate(ballast, ballast.stat().st_size - room)
                else:
                    _limit(provider, 4096)
                go.touch()
                result = (await provider.wait(process)).result
                disk.free()
                assert (result.cause, result.exit_code) == (pb.END_CAUSE_EXITED, 3)
                assert result.stdout.sha256 == hashlib.sha256(bytes(300_000)).hexdigest()
                assert (result.stdout.total_bytes, result.stdout.dropped_bytes) == (300_000, 300_000)
                kept = len(result.stdout.head) + len(result.stdout.tail)
                assert kept == (2 * 128 * 1024 if room else 0)
            note = provider.workspace / "note"
            script = f"head -c 300000 /dev/zero; echo $$ > {note}.new; mv {note}.new {note}; exec sleep 60"
            process = await provider.start(provider.shell(script))
            await until(note.exists, "the output")
            if disk.mounted:
                disk.fill(provider.runs)
            else:
                _limit_one(psutil.Process(provider.process.pid), 4096)
            provider.supervisor_of(int(note.read_text("ascii"))).kill()
            lost = (await provider.wait(process)).result
            disk.free()
            assert (lost.cause, lost.stdout.head, lost.stdout.tail) == (pb.END_CAUSE_LOST, b"", b"")
            assert lost.stdout.total_bytes == lost.stdout.dropped_bytes >= 4096
            assert (await provider.run(provider.shell("exit 0"))).exit_code == 0, "and nothing is damaged"


async def test_a_full_disk_refuses_starts_and_keeps_what_it_has(tmp_path: Path) -> None:
    """Starts are refused until there is room, an operation is not sealed in part, ended runs are answered."""
    with mounted(tmp_path / "state", 8) as disk:
        async with Provider.started(tmp_path) as provider:
            before, operation = new_id("op"), new_id("op")
            await provider.run_as(before, provider.shell("exit 3"))
            ran = provider.workspace / "ran"
            spec = provider.shell(f"echo ran > {ran}")
            if disk.mounted:
                disk.fill(provider.runs)
                assert await refused(provider.start(spec, operation=operation)) == "QUOTA"
                assert await refused(provider.resolve(operation)) == "INTERNAL"
                assert (await provider.resolve(before)).process.result.exit_code == 3
                disk.free()
            assert (await provider.resolve(operation)).HasField("never_started")
            assert not ran.exists()
            assert (await provider.run(spec)).exit_code == 0
        await until(ran.exists, "the command's file")
