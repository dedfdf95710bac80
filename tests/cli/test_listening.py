"""Where a gateway listens: it takes no path or port from the living, and no file that is not its own."""

import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import configs
from tests.support.client import connected
from tests.support.gateway import SHIPPED, RunningGateway, client_environment, serving


@pytest.fixture
def place() -> Iterator[Path]:
    """Give a short place: a socket path has room for 107 bytes only."""
    base = Path(tempfile.mkdtemp(prefix="tyl-"))
    yield base
    shutil.rmtree(base, ignore_errors=True)


def listening(directory: Path, listen: str) -> Path:
    """Write a configuration that says where to listen."""
    return configs.write(directory, more=f"listen: {{{listen}}}")


def start(directory: Path, config: Path) -> subprocess.CompletedProcess[str]:
    """Start a gateway that is expected to end by itself."""
    return subprocess.run(
        [*SHIPPED, "--state-dir", str(directory / "state"), "--config", str(config)],
        env=client_environment(directory / "state"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_a_socket_or_port_in_use_is_not_taken_over(place: Path) -> None:
    """A second gateway on the first one's socket, or port, is refused by name; the first one goes on."""
    path = place / "gateway.sock"
    with serving(place / "first", listening(place / "first", f"unix: {path}")) as first:
        assert first.address == f"unix:{path}"
        second = start(place / "second", listening(place / "second", f"unix: {path}"))
        assert second.returncode == 1
        assert f"another process listens on `{path}`" in second.stderr
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            third = start(place / "third", listening(place / "third", f'tcp: "127.0.0.1:{port}"'))
        assert third.returncode == 1
        assert f"cannot listen on `127.0.0.1:{port}`: another program does" in third.stderr
        async with connected(first) as client:
            _, events = await client.turn("still there?")
        assert events[-1].turn_finished.state


def test_a_file_in_the_sockets_place_is_not_removed(place: Path) -> None:
    """What is no socket is the operator's: the start is refused and the file stays."""
    path = place / "notes.txt"
    path.write_text("mine")
    refused = start(place, listening(place, f"unix: {path}"))
    assert refused.returncode == 1
    assert f"`{path}` is no socket" in refused.stderr
    assert path.read_text() == "mine"


def test_the_socket_of_a_killed_gateway_is_replaced(place: Path) -> None:
    """A socket without a listener is what a dead gateway left behind; nobody has to remove it by hand."""
    path = place / "gateway.sock"
    with serving(place, listening(place, f"unix: {path}")) as gateway:
        gateway.kill()
        assert stat.S_ISSOCK(path.stat().st_mode)
        gateway.start()
        assert gateway.address == f"unix:{path}"


def test_the_socket_is_for_the_owner_alone(place: Path) -> None:
    """The socket grants nothing to group and others, wherever it lies and whatever umask the gateway got."""
    path = place / "gateway.sock"
    careless = ("/bin/sh", "-c", 'umask 0; exec "$0" "$@"', *SHIPPED)
    gateway = RunningGateway(place / "state", listening(place, f"unix: {path}"), launcher=careless)
    try:
        gateway.start()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        gateway.kill()
