"""Output by absolute offset: exact while it is held, honest where it is not, never in the command's way."""

import asyncio
import hashlib

import grpc.aio
import psutil
import pytest

from tests.local_spawn.driver import Provider, info_of, limits, new_id, reason_of
from tyrum.isolation.v1 import isolation_pb2 as pb
from tyrum_local_spawn.supervision.pipes import FLUSH_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

KIB = 1024
MIB = 1024 * KIB
CAP = 8 * MIB


async def test_reading_resumes_at_any_offset(provider: Provider) -> None:
    """A reader that left comes back at its offset: no gap, no overlap, eof exactly once."""
    script = "import os\nfor i in range(200): os.write(1, bytes([i]) * 9973)"
    process = await provider.wait(await provider.start(provider.python(script)))
    expected = b"".join(bytes([i]) * 9973 for i in range(200))
    for offset in (0, 1, 9972, 100_000, len(expected) - 1, len(expected)):
        output = await provider.read(process, offset)
        assert output.data == expected[offset:]
        assert (output.dropped, output.eofs) == (0, 1)
    async for chunk in provider.chunks(process):
        assert chunk.data
        break  # disconnecting does no harm
    assert (await provider.read(process)).data == expected


async def test_an_offset_beyond_the_end_is_refused(provider: Provider) -> None:
    """There is nothing at an offset the command has not reached, running or ended."""
    process = await provider.start(provider.shell("printf abc; exec sleep 60"))
    async for chunk in provider.chunks(process, follow=True):
        if chunk.data:
            break
    for _ in range(2):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await provider.read(process, 4)
        assert reason_of(caught.value) == "FIELD_INVALID"
        assert info_of(caught.value).metadata["field"] == "offset"
        await provider.cancel(process, grace=0)
        await provider.wait(process)


async def test_following_sees_bytes_as_they_come(provider: Provider) -> None:
    """A follower gets a line soon after it is written, waits for the next, and sees eof once at the end."""
    gate = provider.workspace / new_id("gate")
    script = f"echo one; while [ ! -e {gate} ]; do sleep 0.01; done; echo two; exit 0"
    process = await provider.start(provider.shell(script))
    data, eofs = b"", 0
    async for chunk in provider.chunks(process, follow=True):
        data += chunk.data
        eofs += chunk.eof
        if data == b"one\n":
            gate.touch()
    assert (data, eofs) == (b"one\ntwo\n", 1)


async def test_reading_a_running_process_does_not_wait(provider: Provider) -> None:
    """Without follow a reader gets what there is, without eof."""
    process = await provider.start(provider.shell("echo here; exec sleep 60"))
    async for chunk in provider.chunks(process, follow=True):
        if chunk.data:
            break
    output = await provider.read(process)
    assert (output.data, output.eofs) == (b"here\n", 0)
    assert (await provider.read(process, stream=pb.OUTPUT_STREAM_STDERR)).data == b""
    await provider.cancel(process, grace=0)
    await provider.wait(process)


async def test_small_writes_are_coalesced(provider: Provider) -> None:
    """Thousands of tiny writes reach a follower in far fewer chunks, each flushed within a moment."""
    script = """
import os, time
for i in range(2000):
    os.write(1, b'x')
    if i % 100 == 0:
        time.sleep(0.005)
"""
    process = await provider.start(provider.python(script))
    output = await provider.read(process, follow=True)
    assert output.data == b"x" * 2000
    lasted = (await provider.wait(process)).result.duration.ToTimedelta().total_seconds()
    assert output.chunks < 100 + lasted / FLUSH_SECONDS
    assert output.eofs == 1


async def test_many_followers_see_the_same(provider: Provider) -> None:
    """Twenty readers of one stream, more than are served at once, all get every byte."""
    script = "import os, time\nfor i in range(50):\n    os.write(1, bytes([i]) * 4000); time.sleep(0.002)"
    process = await provider.start(provider.python(script))
    outputs = await asyncio.gather(*(provider.read(process, follow=True) for _ in range(20)))
    expected = b"".join(bytes([i]) * 4000 for i in range(50))
    assert all(output.data == expected and output.eofs == 1 for output in outputs)


async def test_quiet_followers_starve_nobody(provider: Provider) -> None:
    """Dozens of followers of a silent stream, come and gone, do not hold up a reader of the other one."""
    process = await provider.start(provider.shell("exec sleep 60"))

    async def follow() -> None:
        await provider.read(process, stream=pb.OUTPUT_STREAM_STDERR, follow=True)

    followers = [asyncio.ensure_future(follow()) for _ in range(30)]
    await asyncio.wait(followers, timeout=0.2)
    for follower in followers[:15]:
        follower.cancel()
    output = await asyncio.wait_for(provider.read(process), 20)
    assert (output.data, output.eofs) == (b"", 0)
    await provider.cancel(process, grace=0)
    ended = await asyncio.gather(*followers, return_exceptions=True)
    assert ended[15:] == [None] * 15


async def test_what_the_spool_dropped_is_stated_exactly(provider: Provider) -> None:
    """Beyond its cap the spool keeps head and newest bytes, and states the gap as one exact number."""
    block = bytes(range(256)) * 256
    script = (
        "import os\nblock = bytes(range(256)) * 256\nfor i in range(480): os.write(1, block[i:] + block[:i])"
    )
    operation = new_id("op")
    result = await provider.run_as(operation, provider.python(script))
    expected = b"".join(block[i:] + block[:i] for i in range(480))
    assert result.stdout.sha256 == hashlib.sha256(expected).hexdigest()
    assert result.stdout.dropped_bytes == len(expected) - CAP
    assert (provider.runs / operation / "stdout").stat().st_size == CAP
    process = (await provider.resolve(operation)).process
    output = await provider.read(process)
    assert output.dropped == result.stdout.dropped_bytes
    assert output.data == expected[: CAP // 4] + expected[-3 * CAP // 4 :]
    middle = await provider.read(process, CAP // 4 + 1000)
    assert middle.dropped == result.stdout.dropped_bytes - 1000
    assert middle.data == expected[-3 * CAP // 4 :]


async def test_a_follower_slower_than_a_flood_loses_exactly_what_it_is_told(provider: Provider) -> None:
    """A reader overtaken by the ring gets a stated gap and then goes on with exact bytes."""
    script = """
import os, struct
for i in range(3000):
    os.write(1, struct.pack("!Q", i) * 2048)
"""
    process = await provider.start(provider.python(script))
    position = 0
    async for chunk in provider.chunks(process, follow=True):
        assert chunk.offset == position + chunk.dropped_before
        for at in range((-chunk.offset) % 8, len(chunk.data) - 7, 8 * 512):
            number = int.from_bytes(chunk.data[at : at + 8], "big")
            assert number == (chunk.offset + at) // (8 * 2048)
        position = chunk.offset + len(chunk.data)
        if chunk.dropped_before == 0 and not chunk.eof:
            await asyncio.sleep(0.01)
    assert position == 3000 * 8 * 2048


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_gibibyte_passes_in_bounded_memory(provider: Provider) -> None:
    """One GiB: exit 0, total, digest, head and tail exact, spool capped, at most 32 MiB more memory."""
    script = """
import os
block = bytes(range(256)) * 4096
for _ in range(1023):
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(1, rest):]
rest = memoryview(bytes(1024 * 1024 - 8) + b"the end!")
while rest:
    rest = rest[os.write(1, rest):]
"""
    operation = new_id("op")
    idle = psutil.Process(provider.process.pid).memory_info().rss
    process = await provider.start(provider.python(script, limits=limits(wall=200)), operation=operation)
    peaks = {"provider": 0, "supervisor": 0}
    supervisors = _supervisors(provider)
    baseline = min((one.memory_info().rss for one in supervisors), default=0)
    waiting = asyncio.ensure_future(provider.wait(process, timeout=200))
    while not waiting.done():
        peaks["provider"] = max(
            peaks["provider"], psutil.Process(provider.process.pid).memory_info().rss - idle
        )
        for one in supervisors:
            try:
                peaks["supervisor"] = max(peaks["supervisor"], one.memory_info().rss - baseline)
            except psutil.NoSuchProcess:
                continue
        await asyncio.wait([waiting], timeout=0.02)
    result = (await waiting).result
    block = bytes(range(256)) * 4096
    digest = hashlib.sha256()
    for _ in range(1023):
        digest.update(block)
    digest.update(bytes(MIB - 8) + b"the end!")
    assert (result.cause, result.exit_code) == (pb.END_CAUSE_EXITED, 0)
    assert result.stdout.total_bytes == 1 << 30
    assert result.stdout.sha256 == digest.hexdigest()
    assert result.stdout.head == block[: 128 * KIB]
    assert result.stdout.tail == bytes(128 * KIB - 8) + b"the end!"
    assert (provider.runs / operation / "stdout").stat().st_size <= CAP
    assert peaks["provider"] <= 32 * MIB
    assert peaks["supervisor"] <= 32 * MIB
    await provider.release(process)


async def test_an_unread_flood_never_blocks_the_command(provider: Provider) -> None:
    """Nobody reads, both streams exceed pipe and spool, and the command still finishes."""
    result = await provider.run(provider.shell("head -c 40000000 /dev/zero; head -c 40000000 /dev/zero >&2"))
    assert (result.exit_code, result.stdout.total_bytes, result.stderr.total_bytes) == (
        0,
        40_000_000,
        40_000_000,
    )


def _supervisors(provider: Provider) -> list[psutil.Process]:
    """Return the supervisors that have a command, and with it a pipe of it."""
    return [one for one in provider.spawner().children() if _runs_python(one)]


def _runs_python(supervisor: psutil.Process) -> bool:
    try:
        return any("python" in child.name() for child in supervisor.children())
    except psutil.NoSuchProcess:  # the run of an earlier test is over
        return False
