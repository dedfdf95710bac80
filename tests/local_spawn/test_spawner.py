"""The process that forks is one that may fork, and that outlives not being able to."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil

import tyrum_local_spawn
from tests.local_spawn.driver import until
from tyrum_local_spawn.supervision.spawner import IDLE_SUPERVISORS

FORBIDDEN = ("grpc", "asyncio", "google", "threading", "tyrum_provider_kit", "concurrent", "multiprocessing")


def test_the_spawner_loads_the_standard_library_only() -> None:
    """The spawner starts isolated from site-packages and loads neither grpc nor asyncio nor threads."""
    package = str(Path(tyrum_local_spawn.__file__).parents[1])
    script = (
        "import sys; sys.path.append(sys.argv.pop()); import tyrum_local_spawn.supervision.spawner; "
        "print('\\n'.join(sys.modules))"
    )
    command = [sys.executable, "-I", "-S", "-c", script, package]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    assert "tyrum_local_spawn.supervision.supervisor" in loaded
    assert not [name for name in loaded if name.split(".")[0] in FORBIDDEN]


async def test_the_spawner_outlives_failed_forks(tmp_path: Path) -> None:
    """When no process can be made it stays, with what it owns, and forks as soon as there is room again."""
    script = (
        "import errno, os, pathlib, sys\n"
        "sys.path.append(sys.argv.pop())\n"
        "from tyrum_local_spawn.supervision.spawner import main\n"
        "fork, full = os.fork, pathlib.Path(sys.argv.pop())\n"
        "def limited():\n"
        "    if full.exists():\n"
        "        full.with_name('refused').touch()\n"
        "        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))\n"
        "    return fork()\n"
        "os.fork = limited\n"
        "main()\n"
    )
    full, runs = tmp_path / "full", tmp_path / "runs"
    full.touch()
    runs.mkdir()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    runs_fd = os.open(runs, os.O_DIRECTORY)
    package = str(Path(tyrum_local_spawn.__file__).parents[1])
    numbers = (theirs.fileno(), runs_fd)
    command = [sys.executable, "-I", "-S", "-c", script, *map(str, numbers), str(full), package]
    with ours, subprocess.Popen(command, pass_fds=numbers) as spawner:  # noqa: ASYNC220
        theirs.close()
        os.close(runs_fd)
        try:
            await until((tmp_path / "refused").exists, "the fork that fails")
            full.unlink()
            await until(
                lambda: len(psutil.Process(spawner.pid).children()) == IDLE_SUPERVISORS, "idle supervisors"
            )
        finally:
            ours.close()
