"""`tyrum demo` shows what it claims, and leaves nothing behind however it ends."""

import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.gateway import TYRUM, client_environment, reaped
from tyrum_gateway.cli.demo_story import verify
from tyrum_gateway.cli.failure import Failure


@pytest.fixture
def place() -> Iterator[Path]:
    """A temporary directory whose path leaves room for a socket, whoever the user is."""
    with tempfile.TemporaryDirectory(prefix="demo-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.mark.slow
def test_the_demonstration_shows_every_section_and_tidies_up(place: Path) -> None:
    """All seven sections are shown in order, whatever gateway the environment names, and no file stays.

    Nothing is imported from the current directory, which may be a repository that somebody else wrote.
    """
    hostile = place / "hostile"
    hostile.mkdir()
    for name in ("typer", "grpc", "structlog", "json", "tyrum_gateway", "tyrum_local_spawn", "sitecustomize"):
        planted = f"open({str(place / 'imported')!r}, 'a').write({name!r})\nraise SystemExit(9)\n"
        (hostile / f"{name}.py").write_text(planted, encoding="utf-8")
    environment = client_environment(place / "nowhere") | {
        "TMPDIR": str(place),
        "TYRUM_TOKEN_FILE": "/dev/null",
        "TYRUM_CONFIG": "/dev/null",
    }
    run = subprocess.run(
        [str(TYRUM), "demo"],
        env=environment,
        cwd=hostile,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert not (place / "imported").exists()
    assert run.returncode == 0, run.stderr + run.stdout
    headings = [line for line in run.stdout.splitlines() if line.startswith("== ")]
    assert [heading[3] for heading in headings] == list("1234567")
    for expected in ("provisional", "[process.run waiting]", "not on this machine", "byte for byte the same"):
        assert expected in run.stdout
    assert not [path for path in place.iterdir() if path.name.startswith("tyrum-demo-")]


def test_a_demonstration_that_is_ended_takes_its_gateway_along(place: Path) -> None:
    """SIGTERM in the middle ends the gateway and removes its state."""
    environment = client_environment(place) | {"TMPDIR": str(place)}
    demo = subprocess.Popen(
        [str(TYRUM), "demo"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with reaped(demo):
        gateway = psutil.Process(announced(place))
        demo.send_signal(signal.SIGTERM)
        ended = demo.wait(60)
    left = gateway.is_running()
    if left:
        gateway.terminate()
    assert not left
    assert ended == 128 + signal.SIGTERM
    assert not list(place.glob("tyrum-demo-*"))


def announced(directory: Path) -> int:
    """Poll until the demonstration's gateway has announced itself; return its process id."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for path in directory.glob("tyrum-demo-*/state/gateway.json"):
            return int(json.loads(path.read_text(encoding="utf-8"))["pid"])
        time.sleep(0.02)
    raise AssertionError(f"no gateway below {list(directory.iterdir())}")


def test_a_section_that_does_not_hold_ends_the_demonstration() -> None:
    """What is claimed and not seen is a failure with its reason."""
    verify(True, "never said")
    with pytest.raises(Failure, match="the demonstration failed: it did not ask"):
        verify(False, "it did not ask")
