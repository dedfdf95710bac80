"""What is left when a process of ours dies: a dead tree, a truthful record, and no second run."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.local_spawn.driver import DEADLINE, Provider, gone, new_id, refused, seconds, until
from tests.local_spawn.test_ending import STUBBORN, first_output, pids
from tyrum.error.v1 import error_pb2
from tyrum.isolation.v1 import isolation_pb2 as pb
from tyrum.provider.v1 import control_pb2
from tyrum_local_spawn.failures import Broken
from tyrum_local_spawn.ids import OperationId
from tyrum_local_spawn.provider import LocalSpawnProvider
from tyrum_local_spawn.register import Register
from tyrum_local_spawn.settings import read_settings
from tyrum_local_spawn.store import Store
from tyrum_local_spawn.supervision.linux import boot_id
from tyrum_local_spawn.supervision.record import (
    Journal,
    decode_exit,
    decode_journal,
    encode_exit,
    encode_journal,
)
from tyrum_local_spawn.supervision.spawner import IDLE_SUPERVISORS
from tyrum_provider_kit import Environment, ServiceError

IDENTITY = ("journal.id", "journal.origin")


async def test_a_killed_provider_takes_its_runs_along(tmp_path: Path) -> None:
    """SIGKILL of the provider kills the whole tree, which would stay, and the record says PROVIDER_GONE.

    So it says of a run whose output the provider asked for and never took.
    """
    operation, process, followed = new_id("op"), new_id("proc"), new_id("op")
    async with Provider.started(tmp_path) as provider:
        note = provider.workspace / "pids"
        spec = provider.python(STUBBORN, str(note))
        await provider.start(spec, operation=operation, process=process)
        await until(lambda: len(pids(note)) >= 5, "the tree")
        go, written = provider.workspace / "go", provider.workspace / "written"
        flood = (
            f"echo first; while [ ! -e {go} ]; do sleep 0.01; done; head -c 1000000 /dev/zero; > {written}"
        )
        reading = await provider.start(provider.shell(f"{flood}; exec sleep 60"), operation=followed)
        async with aclosing(provider.chunks(reading, follow=True)) as chunks:
            await anext(chunks)
            await provider.get(reading)
            spawner = provider.spawner()
            everyone = [spawner, *spawner.children(recursive=True)]
            provider.process.send_signal(signal.SIGSTOP)
            go.touch()
            await until(written.exists, "the output that nobody takes")
            await provider.kill()
        await until(lambda: all(gone(pid) for pid in pids(note)), "the end of the tree")
        await until(lambda: not any(one.is_running() for one in everyone), "the end of all supervisors")

    async with Provider.started(tmp_path) as provider:
        resolved = (await provider.resolve(operation)).process
        assert resolved.result.cause == pb.END_CAUSE_PROVIDER_GONE
        assert (resolved.result.signal, resolved.result.tree_empty) == (signal.SIGKILL, True)
        cause = (await provider.resolve(followed)).process.result.cause
        assert cause == pb.END_CAUSE_PROVIDER_GONE
        lines = len(pids(note))
        assert await provider.start(spec, operation=operation, process=process) == resolved
        assert len(pids(note)) == lines, "it did not run again"


async def test_a_killed_supervisor_is_a_lost_run(tmp_path: Path) -> None:
    """SIGKILL of the supervisor kills the tree; the outcome is LOST, not guessed, also after a restart."""
    operation = new_id("op")
    async with Provider.started(tmp_path) as provider:
        note = provider.workspace / "pids"
        script = STUBBORN.replace("note()\n", "note()\nprint('begun', flush=True)\n", 1)
        process = await provider.start(provider.python(script, str(note)), operation=operation)
        await until(lambda: len(pids(note)) >= 5, "the tree")
        await first_output(provider, process)
        provider.supervisor_of(pids(note)[0]).kill()
        lost = await provider.wait(process)
        assert lost.result.cause == pb.END_CAUSE_LOST
        assert not lost.result.HasField("exit_code")
        assert not lost.result.HasField("signal")
        assert lost.result.stdout.head == b"begun\n", "what was spooled is still evidence"
        await until(lambda: all(gone(pid) for pid in pids(note)), "the end of the tree")
        assert (await provider.run(provider.shell("exit 0"))).exit_code == 0
    async with Provider.started(tmp_path) as provider:
        assert (await provider.resolve(operation)).process == lost


async def test_a_killed_spawner_is_replaced(tmp_path: Path) -> None:
    """Runs in progress do not depend on the spawner, and new ones find another."""
    async with Provider.started(tmp_path) as provider:
        process = await provider.start(provider.shell("while [ ! -e go ]; do sleep 0.01; done; exit 6"))
        first = provider.spawner()
        first.kill()
        for number in range(10):
            assert (await provider.run(provider.shell(f"exit {number}"))).exit_code == number
        assert provider.spawner() != first
        (provider.workspace / "go").touch()
        assert (await provider.wait(process)).result.exit_code == 6


async def test_killed_idle_supervisors_are_replaced(tmp_path: Path) -> None:
    """Killing idle supervisors costs nothing but themselves."""
    async with Provider.started(tmp_path) as provider:
        await until(lambda: len(provider.spawner().children()) == IDLE_SUPERVISORS, "idle supervisors")
        for idle in provider.spawner().children():
            idle.kill()
        assert (await provider.run(provider.shell("exit 6"))).exit_code == 6


async def test_answers_survive_a_restart(tmp_path: Path) -> None:
    """Results, output and promises are the same from the next instance on the same state directory."""
    never, operation, process = new_id("op"), new_id("op"), new_id("proc")
    async with Provider.started(tmp_path) as provider:
        spec = provider.shell("echo out; head -c 300000 /dev/zero >&2; exit 3", secret_env={"S": "one"})
        await provider.start(spec, operation=operation, process=process)
        ended = await provider.wait(process)
        tombstone = await provider.resolve(never)
    async with Provider.started(tmp_path) as provider:
        assert await provider.get(process) == ended
        assert await provider.start(spec, operation=operation, process=process) == ended
        spec.secret_env["S"] = "two"
        again = provider.start(spec, operation=operation, process=process)
        assert await refused(again) == "REQUEST_ID_REUSED"
        assert await provider.resolve(never) == tombstone
        assert await refused(provider.start(provider.shell("exit 0"), operation=never)) == "REQUEST_ID_REUSED"
        output = await provider.read(process, 100_000, stream=pb.OUTPUT_STREAM_STDERR)
        assert (output.data, output.eofs) == (bytes(200_000), 1)


async def test_an_unfinished_record_without_supervisor_is_lost(tmp_path: Path) -> None:
    """A journal alone proves a begun run: LOST; whoever has the supervisor's id now is not touched."""
    operation, process = new_id("op"), new_id("proc")
    async with Provider.started(tmp_path) as provider:
        decoy = await provider.start(provider.spec("/bin/sleep", "60"))
        decoy_pid = next(
            child.pid
            for child in provider.spawner().children(recursive=True)
            if child.cmdline() == ["/bin/sleep", "60"]
        )
        journal = Journal(
            operation_id=operation,
            process_id=process,
            spec_digest="0" * 64,
            boot_id=boot_id(),
            supervisor_pid=decoy_pid,
            run_uid=0,
            spool_bytes=8 << 20,
            recorded_at_ns=1_700_000_000_000_000_000,
        )
        (provider.runs / operation).mkdir()
        (provider.runs / operation / "journal").write_bytes(encode_journal(journal))
        found = (await provider.resolve(operation)).process
        assert (found.process_id, found.result.cause) == (process, pb.END_CAUSE_LOST)
        assert not gone(decoy_pid)
        await provider.cancel(decoy, grace=0)


async def test_spools_of_another_boot_are_not_trusted(tmp_path: Path) -> None:
    """After a reboot the synced evidence stands, and unsynced spool bytes count as dropped."""
    operation = new_id("op")
    async with Provider.started(tmp_path) as provider:
        result = await provider.run_as(operation, provider.shell("head -c 20000 /dev/zero"))
    path = provider.runs / operation / "journal"
    path.write_bytes(encode_journal(replace(decode_journal(path.read_bytes()), boot_id="another")))
    async with Provider.started(tmp_path) as provider:
        process = (await provider.resolve(operation)).process
        assert process.result.stdout.head == result.stdout.head == bytes(20000)
        assert process.result.stdout.dropped_bytes == 20000
        output = await provider.read(process)
        assert (output.data, output.dropped, output.eofs) == (b"", 20000, 1)


def _flip(position: int) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)

    return flip


def _cut(size: int) -> Callable[[Path], None]:
    def cut(path: Path) -> None:
        os.truncate(path, size)

    return cut


HARM: dict[str, tuple[str, Callable[[Path], None]]] = {
    "flipped journal": ("journal", _flip(100)),
    "journal with something behind it": ("journal", _flip(-1)),
    "cut journal": ("journal", _cut(100)),
    "empty journal": ("journal", _cut(0)),
    "no journal": ("journal", Path.unlink),
    "flipped exit": ("exit", _flip(100)),
    "exit with something behind it": ("exit", _flip(-1)),
    "cut exit": ("exit", _cut(10)),
    "empty exit": ("exit", _cut(0)),
}


async def test_a_damaged_record_stops_new_starts(tmp_path: Path) -> None:
    """Damage is reported, kept as it is and never read as "did not run"; intact records still answer."""
    harmed, intact = {name: new_id("op") for name in HARM}, new_id("op")
    async with Provider.started(tmp_path) as provider:
        await asyncio.gather(
            *(
                provider.run_as(operation, provider.shell("exit 1"))
                for operation in (*harmed.values(), intact)
            )
        )
    for name, operation in harmed.items():
        file, harm = HARM[name]
        harm(provider.runs / operation / file)
    left = _contents(provider.runs)
    async with Provider.started(tmp_path) as provider:
        for name, operation in harmed.items():
            assert await refused(provider.resolve(operation)) == "STORE_CORRUPT", name
            again = provider.start(provider.shell("exit 1"), operation=operation)
            assert await refused(again) == "STORE_CORRUPT", name
        assert await refused(provider.start(provider.shell("exit 0"))) == "STORE_CORRUPT"
        assert await refused(provider.get(new_id("proc"))) == "STORE_CORRUPT"
        assert (await provider.resolve(intact)).process.result.exit_code == 1
        probe = await provider.control.Probe(control_pb2.ProbeRequest(deep=True), timeout=DEADLINE)
        assert not probe.ready
        condition = next(one for one in probe.conditions if one.type == "RecordsIntact")
        assert (condition.status, condition.reason) == (control_pb2.CONDITION_STATUS_FALSE, "STORE_CORRUPT")
        assert any(operation in condition.message for operation in harmed.values())
        assert _contents(provider.runs) == left


def _contents(runs: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in runs.glob("op_*/*")}


async def test_a_missing_key_stops_new_starts(tmp_path: Path) -> None:
    """Without the key no repeated request can be recognised, so none is taken."""
    operation = new_id("op")
    async with Provider.started(tmp_path) as provider:
        await provider.run_as(operation, provider.shell("exit 0"))
    (provider.state_dir / "digest.key").unlink()
    async with Provider.started(tmp_path) as provider:
        assert await refused(provider.start(provider.shell("exit 0"))) == "STORE_CORRUPT"
        assert (await provider.resolve(operation)).process.result.cause == pb.END_CAUSE_EXITED


async def test_what_no_record_owns_is_swept(tmp_path: Path) -> None:
    """Half-made and half-removed directories of a predecessor go, records stay."""
    operation = new_id("op")
    async with Provider.started(tmp_path) as provider:
        await provider.run_as(operation, provider.shell("exit 0"))
    for name in (".idle-99999999", f".released-{new_id('op')}", f".tombstone-{new_id('op')}"):
        (provider.runs / name).mkdir()
        (provider.runs / name / "journal").write_text("")
    async with Provider.started(tmp_path) as provider:
        left = {path.name for path in provider.runs.iterdir() if not path.name.startswith(".idle-")}
        assert left == {operation, *IDENTITY}
        assert not (provider.runs / ".idle-99999999").exists()


async def test_a_rename_lost_with_another_boot_is_made_again(tmp_path: Path) -> None:
    """A journal under an idle name tells what began before the host crashed; on this boot nothing did."""
    begun, here, sealed = new_id("op"), new_id("op"), new_id("op")
    async with Provider.started(tmp_path) as provider:
        for operation in (begun, here):
            await provider.run_as(operation, provider.shell("exit 3"))
        await provider.resolve(sealed)
    journal = decode_journal((provider.runs / begun / "journal").read_bytes())
    for number, operation in enumerate((begun, here, sealed)):
        idle = provider.runs / f".idle-9999999{number}"
        if operation is sealed:
            idle.mkdir()
        else:
            (provider.runs / operation).rename(idle)
        boot = boot_id() if operation is here else "another"
        (idle / "journal").write_bytes(encode_journal(replace(journal, operation_id=operation, boot_id=boot)))
    async with Provider.started(tmp_path) as provider:
        assert (await provider.resolve(begun)).process.result.exit_code == 3
        assert (await provider.resolve(here)).WhichOneof("outcome") == "never_started"
        assert (await provider.resolve(sealed)).WhichOneof("outcome") == "never_started"
        assert not list(provider.runs.glob(".idle-9999999*"))


async def test_records_leave_after_their_retention(tmp_path: Path) -> None:
    """A gateway that was away for longer than the retention is told what ran; then old records leave."""
    old, young = new_id("op"), new_id("op")
    config = {"run_as": "gateway_user", "retention_seconds": 86400}
    async with Provider.started(tmp_path, config) as provider:
        await provider.run_as(young, provider.shell("exit 0"))
        await provider.run_as(old, provider.shell("exit 0"))
    _age(provider.runs / old)
    async with Provider.started(tmp_path, config) as provider:
        assert (await provider.resolve(old)).HasField("process")
        assert (await provider.resolve(young)).HasField("process")
    store = Store(provider.state_dir)
    store.open()
    register = Register(store, read_settings(config).retention)
    await register.load()
    await register.sweep()
    with pytest.raises(Broken, match="began"):
        await register.resolve(OperationId(old))
    store.close()
    left = {path.name for path in provider.runs.iterdir() if not path.name.startswith(".")}
    assert left == {young, *IDENTITY}


async def test_one_provider_holds_a_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second instance on the same state directory is refused while the first lives."""
    monkeypatch.setattr("tyrum_local_spawn.store._OWNER_SECONDS", 0.1)
    async with Provider.started(tmp_path) as provider:
        place = Environment(tmp_path / "s", new_id("inst"), provider.state_dir, tmp_path, (1, 1))
        with pytest.raises(ServiceError) as caught:
            await LocalSpawnProvider().configure({"run_as": "gateway_user"}, {}, place)
        assert caught.value.reason == error_pb2.ERROR_REASON_BACKEND_UNAVAILABLE
        assert (await provider.run(provider.shell("exit 0"))).exit_code == 0


async def test_draining_starts_nothing_new(tmp_path: Path) -> None:
    """While draining new starts are refused, equal ones are answered, and running processes go on."""
    operation, process = new_id("op"), new_id("proc")
    async with Provider.started(tmp_path) as provider:
        spec = provider.shell("while [ ! -e go ]; do sleep 0.01; done; exit 6")
        running = await provider.start(spec, operation=operation, process=process)
        drained = await provider.control.Drain(control_pb2.DrainRequest(), timeout=DEADLINE)
        assert drained.in_flight == 1
        refused_operation = new_id("op")
        fresh = provider.start(provider.shell("exit 0"), operation=refused_operation)
        assert await refused(fresh) == "DRAINING"
        assert not (provider.runs / refused_operation).exists()
        assert await provider.start(spec, operation=operation, process=process) == running
        (provider.workspace / "go").touch()
        assert (await provider.wait(process)).result.exit_code == 6


@pytest.mark.parametrize("grace", [0, 1.2])
async def test_shutdown_ends_what_runs(tmp_path: Path, grace: float) -> None:
    """Shutdown leaves no process, exits 0, and records PROVIDER_GONE for what it ended."""
    operation = new_id("op")
    async with Provider.started(tmp_path) as provider:
        note = provider.workspace / "pids"
        await provider.start(provider.python(STUBBORN, str(note)), operation=operation)
        await until(lambda: len(pids(note)) >= 5, "the tree")
        spawner = provider.spawner()
        everyone = [spawner, *spawner.children(recursive=True)]
        await provider.control.Shutdown(control_pb2.ShutdownRequest(grace=seconds(grace)), timeout=DEADLINE)
        await until(lambda: provider.process.returncode is not None, "the exit")
        assert provider.process.returncode == 0
        await until(lambda: all(gone(pid) for pid in pids(note)), "the end of the tree")
        await until(
            lambda: not any(one.is_running() for one in everyone), "the end of spawner and supervisors"
        )
    async with Provider.started(tmp_path) as provider:
        assert (await provider.resolve(operation)).process.result.cause == pb.END_CAUSE_PROVIDER_GONE


def _age(directory: Path) -> None:
    """Rewrite an exit record as if it were two days old."""
    path = directory / "exit"
    record = decode_exit(path.read_bytes())
    path.write_bytes(encode_exit(replace(record, ended_at_ns=record.ended_at_ns - 2 * 86400 * 10**9)))
