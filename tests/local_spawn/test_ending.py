"""Every way a run ends: the first cause wins, the tree is gone, the record says so."""

import asyncio
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.local_spawn.driver import Provider, gone, limits, new_id, refused, until
from tyrum.isolation.v1 import isolation_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Writes the ids of a tree that does everything to stay: ignores SIGTERM, forks twice, leaves the session.
STUBBORN = """
import os, signal, sys, time
path = sys.argv[1]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def note():
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\\n")
note()
for detach in (False, True):
    if os.fork() == 0:
        if detach:
            os.setsid()
        if os.fork() == 0:
            os.setpgid(0, 0) if not detach else os.setsid() if os.getpid() != os.getsid(0) else None
            if os.fork():
                os._exit(0)
            note()
            time.sleep(60)
        note()
        time.sleep(60)
time.sleep(60)
"""


def pids(path: Path) -> list[int]:
    """Return the process ids noted so far."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []


async def test_a_stubborn_tree_is_ended(provider: Provider) -> None:
    """Cancelling ends a tree that ignores SIGTERM and left group and session, after its grace."""
    path = provider.workspace / new_id("pids")
    process = await provider.start(provider.python(STUBBORN, str(path)))
    await until(lambda: len(pids(path)) >= 5, "the tree")
    began = time.monotonic()
    assert await provider.cancel(process, grace=0.3) == pb.PROCESS_STATE_RUNNING
    result = (await provider.wait(process)).result
    assert time.monotonic() - began >= 0.3
    assert result.cause == pb.END_CAUSE_CANCELLED
    assert (result.signal, result.tree_empty) == (signal.SIGKILL, True)
    assert all(gone(pid) for pid in pids(path))


async def test_sigterm_comes_first(provider: Provider) -> None:
    """A command may clean up on SIGTERM; its own exit code is reported beside the cause."""
    spec = provider.shell("trap 'echo bye; exit 9' TERM; echo ready; while :; do sleep 0.05; done")
    process = await provider.start(spec)
    await first_output(provider, process)
    await provider.cancel(process, grace=30)
    result = (await provider.wait(process)).result
    assert (result.cause, result.exit_code) == (pb.END_CAUSE_CANCELLED, 9)
    assert result.stdout.head == b"ready\nbye\n"


async def test_a_shorter_grace_overtakes_a_longer_one(provider: Provider) -> None:
    """A second cancel with less grace brings SIGKILL forward."""
    process = await provider.start(provider.shell("trap '' TERM; echo ready; while :; do sleep 0.05; done"))
    await first_output(provider, process)
    await provider.cancel(process, grace=30)
    await provider.cancel(process, grace=0)
    result = (await provider.wait(process, timeout=20)).result
    assert (result.cause, result.signal) == (pb.END_CAUSE_CANCELLED, signal.SIGKILL)


async def test_the_first_cause_stays(provider: Provider) -> None:
    """Cancelling again and after the end is acknowledged and changes nothing; unknown ids are NOT_FOUND."""
    process = await provider.start(provider.shell("exit 3"))
    first = await provider.wait(process)
    assert await provider.cancel(process) == pb.PROCESS_STATE_ENDED
    assert await provider.cancel(process) == pb.PROCESS_STATE_ENDED
    assert await provider.wait(process) == first
    assert first.result.cause == pb.END_CAUSE_EXITED
    assert await refused(provider.cancel(new_id("proc"))) == "RESOURCE_NOT_FOUND"


async def test_a_supervisor_asked_to_stop_ends_its_run(provider: Provider) -> None:
    """SIGTERM to a supervisor, as at the end of the host, kills the tree and is recorded as PROVIDER_GONE."""
    path = provider.workspace / new_id("pid")
    process = await provider.start(
        provider.shell(f"trap '' TERM; echo $$ > {path}; while :; do sleep 0.05; done")
    )
    await until(lambda: pids(path), "the command")
    provider.supervisor_of(pids(path)[0]).terminate()
    result = (await provider.wait(process)).result
    assert (result.cause, result.signal, result.tree_empty) == (
        pb.END_CAUSE_PROVIDER_GONE,
        signal.SIGKILL,
        True,
    )


async def test_leftovers_end_with_their_leader(provider: Provider) -> None:
    """A daemon that outlives its leader and holds the pipes is killed, and the end does not wait for it."""
    path = provider.workspace / new_id("pid")
    script = (
        f"setsid sh -c 'echo $$ > {path}; exec sleep 60' & while [ ! -s {path} ]; do sleep 0.01; done; exit 4"
    )
    result = await provider.run(provider.shell(script))
    assert (result.cause, result.exit_code, result.tree_empty) == (pb.END_CAUSE_EXITED, 4, True)
    assert result.descendants_killed
    assert gone(pids(path)[0])


async def test_leftovers_may_finish_what_they_write(provider: Provider) -> None:
    """A descendant that only writes its last line after the leader's end is not cut off."""
    end = provider.workspace / new_id("end")
    # The leader holds the other end: the descendant goes on when it has exited.
    late = f"mkfifo {end}; (read -r _; sleep 0.03; echo late) <{end} & exec 3>{end}; rm {end}; exit 0"
    for _ in range(20):  # it has a tenth of a second, which a busy machine may take from it now and then
        result = await provider.run(provider.shell(late))
        if result.stdout.head:
            break
    assert result.stdout.head == b"late\n"


async def test_the_wall_clock_limit_holds(provider: Provider) -> None:
    """A command that does nothing is ended at its limit."""
    process = await provider.start(provider.shell("sleep 60", limits=limits(wall=0.4)))
    result = (await provider.wait(process)).result
    assert result.cause == pb.END_CAUSE_WALL_TIME
    assert 0.4 <= result.duration.ToTimedelta().total_seconds() < 20


async def test_the_wall_clock_limit_holds_under_a_flood(provider: Provider) -> None:
    """Output at full speed on both streams does not hold the timer up."""
    script = "trap '' TERM; cat /dev/zero & cat /dev/zero >&2"
    process = await provider.start(provider.shell(script, limits=limits(wall=1, grace=0.2)))
    result = (await provider.wait(process)).result
    assert result.cause == pb.END_CAUSE_WALL_TIME
    assert 1 <= result.duration.ToTimedelta().total_seconds() < 20
    assert result.tree_empty
    assert min(result.stdout.total_bytes, result.stderr.total_bytes) > 1 << 18


async def test_a_flood_can_be_cancelled(provider: Provider) -> None:
    """Cancel is acknowledged and obeyed while output floods."""
    process = await provider.start(provider.shell("cat /dev/zero & cat /dev/zero >&2"))
    await first_output(provider, process)
    await provider.cancel(process, grace=0)
    assert (await provider.wait(process)).result.cause == pb.END_CAUSE_CANCELLED


async def test_the_output_limit_counts_both_streams(provider: Provider) -> None:
    """More bytes than allowed end the run; exactly as many do not."""
    script = "head -c 600000 /dev/zero; head -c 400000 /dev/zero >&2; {}"
    exact = await provider.run(provider.shell(script.format(":"), limits=limits(output=1_000_000)))
    assert (exact.cause, exact.exit_code) == (pb.END_CAUSE_EXITED, 0)
    more = await provider.run(
        provider.shell(script.format("echo; sleep 60"), limits=limits(output=1_000_000))
    )
    assert more.cause == pb.END_CAUSE_OUTPUT_LIMIT
    assert more.stdout.total_bytes + more.stderr.total_bytes == 1_000_001


async def test_a_fork_storm_is_chased_down(provider: Provider) -> None:
    """A tree that keeps forking out of its session while it is killed is gone in the end."""
    path = provider.workspace / new_id("pids")
    script = """
import os, sys, time
end = time.monotonic() + 20
while time.monotonic() < end:
    if os.fork() == 0:
        os.setsid()
        continue
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(0.005)
    os._exit(0)
"""
    spec = provider.shell(f'{sys.executable} -I -S -c "$0" {path} & sleep 60', limits=limits())
    spec.argv[2:] = [spec.argv[2], script]
    process = await provider.start(spec)
    await until(lambda: len(pids(path)) > 20, "the storm")
    await provider.cancel(process, grace=0)
    assert (await provider.wait(process)).result.tree_empty
    count = len(pids(path))
    await asyncio.sleep(0.2)  # nothing is left that could add a line
    assert len(pids(path)) == count


async def test_waiting_is_bounded_and_harmless(provider: Provider) -> None:
    """A wait that expires says so, an abandoned one does no harm, and many get the same answer."""
    gate = provider.workspace / new_id("gate")
    script = f"echo on; while [ ! -e {gate} ]; do sleep 0.01; done"
    process = await provider.start(provider.shell(script))
    assert await refused(provider.wait(process, timeout=0)) == "WAIT_EXPIRED"
    assert await refused(provider.wait(process, timeout=0.05)) == "WAIT_EXPIRED"
    abandoned = asyncio.ensure_future(provider.wait(process))
    await first_output(provider, process)
    abandoned.cancel()
    waiting = asyncio.gather(*(provider.wait(process) for _ in range(10)))
    gate.touch()
    answers = await waiting
    assert all(answer == answers[0] for answer in answers)
    assert answers[0].result.cause == pb.END_CAUSE_EXITED
    assert await provider.get(process) == answers[0]
    assert await refused(provider.wait(new_id("proc"))) == "RESOURCE_NOT_FOUND"
    assert await refused(provider.get(new_id("proc"))) == "RESOURCE_NOT_FOUND"


async def test_a_closed_stdout_does_not_end_the_run(provider: Provider) -> None:
    """A command that closes its streams goes on until it exits."""
    result = await provider.run(provider.shell("exec >&- 2>&-; sleep 0.2; exit 5"))
    assert (result.cause, result.exit_code) == (pb.END_CAUSE_EXITED, 5)


async def test_release_needs_an_ended_process(provider: Provider) -> None:
    """A running process is not released; an ended one is, repeatedly; then it is unknown, never denied."""
    operation, spec = new_id("op"), provider.shell("echo x; sleep 60")
    process = await provider.start(spec, operation=operation)
    assert await refused(provider.release(process)) == "PROCESS_RUNNING"
    await provider.cancel(process, grace=0)
    await provider.wait(process)
    assert (provider.runs / operation).exists()
    await provider.release(process)
    await provider.release(process)
    assert not (provider.runs / operation).exists()
    assert await refused(provider.get(process)) == "RESOURCE_NOT_FOUND"
    assert await refused(provider.resolve(operation)) == "INTERNAL"
    assert await refused(provider.start(spec, operation=operation)) == "REQUEST_ID_REUSED"


async def first_output(provider: Provider, process: pb.Process) -> None:
    """Wait until the spool holds something that a command wrote."""
    async for chunk in provider.chunks(process, follow=True):
        if chunk.data:
            return
