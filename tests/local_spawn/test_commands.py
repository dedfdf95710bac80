"""A command gets exactly what was asked for, and nothing of the provider."""

import hashlib
import json
import os
import signal
from contextlib import aclosing

import psutil
import pytest

from tests.local_spawn.driver import Provider, limits, new_id
from tests.support.contents import contents
from tyrum.isolation.v1 import isolation_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="module")

TELL = """
import json, os, resource, signal, sys
print(json.dumps({
    "argv": sys.argv[1:],
    "env": dict(os.environ),
    "cwd": os.getcwd(),
    "fds": sorted(int(name) for name in os.listdir("/proc/self/fd")),
    "umask": os.umask(0),
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "session": os.getsid(0) == os.getpid() == os.getpgrp(),
    "stdin": os.readlink("/proc/self/fd/0"),
    "status": open("/proc/self/status").read(),
    "parent_cmdline": open(f"/proc/{os.getppid()}/cmdline").read(),
}))
"""


async def test_argv_arrives_byte_for_byte(provider: Provider) -> None:
    """Spaces, quotes, UTF-8, empty and shell-like arguments arrive unchanged, without any shell."""
    arguments = [
        "",
        "a b",
        "'\"",
        "ünï→🙂",
        "$HOME",
        "`id`",
        "*",
        "-c",
        "a\nb",
        "\\",
        "; true",
        "x" * 100_000,
    ]
    result = await provider.run(
        provider.python("import sys; sys.stdout.write('\\0'.join(sys.argv[1:]))", *arguments)
    )
    assert result.stdout.total_bytes == len("\0".join(arguments).encode())
    assert hashlib.sha256("\0".join(arguments).encode()).hexdigest() == result.stdout.sha256


async def test_a_command_is_ended_before_its_supervisor_when_memory_runs_out(provider: Provider) -> None:
    """The score of the command is higher by 500; its supervisor's is what it was given."""
    tell = "import os; [print(open(f'/proc/{pid}/oom_score_adj').read()) for pid in ('self', os.getppid())]"
    command, supervisor = (await provider.run(provider.python(tell))).stdout.head.decode().split()
    assert int(command) == min(int(supervisor) + 500, 1000)
    assert int(supervisor) < 500


@pytest.mark.parametrize("code", [0, 1, 7, 126, 127, 128, 137, 255])
async def test_exit_codes_are_exact(provider: Provider, code: int) -> None:
    """An exit code is reported as itself, also where a shell would mean a signal by it."""
    result = await provider.run(provider.shell(f"exit {code}"))
    assert (result.cause, result.exit_code, result.HasField("signal")) == (pb.END_CAUSE_EXITED, code, False)
    assert result.tree_empty
    assert not result.descendants_killed


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE])
async def test_signals_are_exact(provider: Provider, number: signal.Signals) -> None:
    """Death by a signal that the provider did not send is SIGNALED with its number and no exit code."""
    result = await provider.run(provider.shell(f"kill -{int(number)} $$"))
    assert (result.cause, result.signal, result.HasField("exit_code")) == (
        pb.END_CAUSE_SIGNALED,
        number,
        False,
    )


async def test_a_command_starts_clean(provider: Provider) -> None:
    """Environment exact, three descriptors, default signals, umask 022, no core files, its own session."""
    spec = provider.python(TELL, "one", env={"ONLY": "this"})
    result = await provider.run(spec)
    told = json.loads(result.stdout.head)
    assert told["argv"] == ["one"]
    assert told["env"] == {"ONLY": "this", "LC_CTYPE": told["env"].get("LC_CTYPE", "")} or told["env"] == {
        "ONLY": "this"
    }
    assert told["cwd"] == str(provider.workspace)
    assert told["fds"] == [0, 1, 2, 3], "3 is the listing itself"
    assert told["umask"] == 0o022
    assert told["core"] == [0, 0]
    assert told["session"]
    assert told["stdin"] == "/dev/null"
    status = dict(line.split(":\t", 1) for line in told["status"].splitlines())
    assert int(status["SigBlk"], 16) == 0
    # The interpreter that tells this ignores SIGPIPE and SIGXFSZ and handles SIGINT by itself.
    own = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1) | 0b11 << 31
    assert int(status["SigIgn"], 16) & ~own == 0
    assert "canary" not in told["parent_cmdline"]


async def test_a_plain_program_inherits_default_signal_dispositions(provider: Provider) -> None:
    """No signal is ignored or blocked in a command that does not ask for it."""
    result = await provider.run(provider.spec("/bin/cat", "/proc/self/status"))
    status = dict(line.split(":\t", 1) for line in result.stdout.head.decode().splitlines())
    private = 0b11 << 31  # 32 and 33 belong to the C library, which ignores them in what it spawns
    assert {int(status[name], 16) & ~private for name in ("SigBlk", "SigIgn", "SigCgt")} == {0}


async def test_nothing_of_the_provider_leaks(provider: Provider) -> None:
    """Neither command nor supervisor carries the provider's environment or token in environment or argv."""
    script = "cat /proc/self/environ /proc/$PPID/environ /proc/$PPID/cmdline; ls /proc/self/fd"
    result = await provider.run(provider.shell(script, env={}))
    assert b"canary" not in result.stdout.head
    assert provider.bearer.encode() not in result.stdout.head


async def test_cwd_is_honoured(provider: Provider) -> None:
    """A relative working directory is taken beneath the workspace."""
    (provider.workspace / "a" / "b").mkdir(parents=True, exist_ok=True)
    result = await provider.run(provider.spec("/bin/pwd", "-P", cwd="a/b"))
    assert result.stdout.head.decode().strip() == str(provider.workspace / "a" / "b")


async def test_stdin_is_delivered_and_closed(provider: Provider) -> None:
    """Given bytes are read to the end of file, up to 64 KiB, whether the command reads them or not."""
    data = os.urandom(64 * 1024)
    result = await provider.run(provider.spec("/bin/cat", stdin=data))
    assert result.stdout.head == data
    assert (await provider.run(provider.spec("/bin/true", stdin=data))).cause == pb.END_CAUSE_EXITED
    assert (await provider.run(provider.spec("/bin/cat"))).stdout.total_bytes == 0


async def test_streams_are_separate_and_binary_safe(provider: Provider) -> None:
    """Ten megabytes of every byte value arrive on the stream they were written to, in order."""
    script = """
import os, sys
block = bytes(range(256)) * 64
for _ in range(640):
    os.write(1, block); os.write(2, block[::-1])
"""
    result = await provider.run(provider.python(script))
    block = bytes(range(256)) * 64
    assert result.stdout.total_bytes == result.stderr.total_bytes == 640 * len(block)
    assert result.stdout.sha256 == hashlib.sha256(block * 640).hexdigest()
    assert result.stderr.sha256 == hashlib.sha256(block[::-1] * 640).hexdigest()
    assert result.stdout.head == (block * 8)
    assert result.stdout.tail == (block * 8)


async def test_a_secret_reaches_the_command_and_nothing_else(provider: Provider) -> None:
    """A secret variable is in the command's environment, and in no file of the provider, no argv, no log."""
    secret = "planted-secret-" + new_id("s")
    operation = new_id("op")
    spec = provider.shell('test -n "$TOKEN" && echo got it; sleep 30', secret_env={"TOKEN": secret})
    process = await provider.start(spec, operation=operation)
    try:
        async with aclosing(provider.chunks(process, follow=True)) as chunks:
            assert (await anext(chunks)).data == b"got it\n"
        written = contents(provider.root)
        assert provider.log in written
        assert not [path for path, content in written.items() if secret.encode() in content]
        assert not [one.pid for one in psutil.process_iter(["cmdline"]) if secret in str(one.info["cmdline"])]
    finally:
        await provider.cancel(process, grace=0)
    ended = await provider.wait(process)
    assert ended.result.stdout.head == b"got it\n"
    assert secret.encode() not in (provider.runs / operation / "journal").read_bytes()
    assert secret.encode() not in provider.log.read_bytes()


async def test_a_script_runs_by_its_interpreter(provider: Provider) -> None:
    """A program with a shebang line is executed under its own path."""
    script = provider.workspace / "script"
    script.write_text('#!/bin/sh\necho "$0" "$1"\n')
    script.chmod(0o755)
    digest = hashlib.sha256(script.read_bytes()).hexdigest()
    spec = provider.spec(str(script), "x", program=pb.FileReference(path=str(script), sha256=digest))
    result = await provider.run(spec)
    assert result.stdout.head.decode() == f"{script} x\n"


async def test_duration_and_times_are_told(provider: Provider) -> None:
    """Start, end and duration agree with what the command did."""
    process = await provider.wait(await provider.start(provider.shell("sleep 0.2", limits=limits())))
    lasted = process.result.duration.ToTimedelta().total_seconds()
    between = process.result.ended_at.ToNanoseconds() - process.started_at.ToNanoseconds()
    assert 0.19 < lasted <= between / 1e9 + 0.01
