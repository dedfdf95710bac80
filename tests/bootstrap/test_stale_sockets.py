"""What killed gateways leave in the runtime directory goes at the next start, and nothing else."""

import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gateway import serving
from tyrum_gateway.bootstrap.state_directory import remove_stale_sockets

LONG_AGO = time.time() - 3600


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A directory with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="tyg-") as directory:
        yield Path(directory)


def leave_socket(path: Path) -> None:
    """Leave a socket as a killed listener does, an hour ago."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
    os.utime(path, (LONG_AGO, LONG_AGO))


def test_only_sockets_that_nobody_answers_are_removed(runtime: Path) -> None:
    """A dead gateway's socket goes; a living or young one, a file, a link and other names stay."""
    dead, young, link = (runtime / f"gateway-{name}.sock" for name in ("dead", "young", "link"))
    alive, file, other = runtime / "gateway-alive.sock", runtime / "gateway-file.sock", runtime / "other.sock"
    for path in (dead, young, other):
        leave_socket(path)
    os.utime(young)
    file.write_text("no socket")
    link.symlink_to(other)
    for path in (file, link):
        os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(alive))
        listener.listen()
        os.utime(alive, (LONG_AGO, LONG_AGO))
        assert remove_stale_sockets(runtime) == [dead]
    assert sorted(runtime.iterdir()) == sorted([young, link, alive, file, other])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a socket to another user")
def test_a_socket_of_another_user_stays(runtime: Path) -> None:
    """What belongs to somebody else is not touched, even by root."""
    foreign = runtime / "gateway-foreign.sock"
    leave_socket(foreign)
    os.chown(foreign, 54321, 54321)
    assert remove_stale_sockets(runtime) == []
    assert foreign.exists()


def test_a_start_clears_what_a_killed_gateway_left(tmp_path: Path) -> None:
    """A gateway with another state directory removes the socket of a killed one."""
    with serving(tmp_path / "first") as first:
        left = Path(first.address.removeprefix("unix:"))
        first.kill()
        os.utime(left, (LONG_AGO, LONG_AGO))
        with serving(tmp_path / "second") as second:
            assert not left.exists()
            assert Path(second.address.removeprefix("unix:")).exists()
