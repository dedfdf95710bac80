"""The chat-client guide and its example do what they say."""

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import toolchain
from tests.support.gateway import TYRUM, RunningGateway, client_environment, reaped, serving

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/guides/chat-client.md"
EXAMPLE = ROOT / "examples/client_node"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    """Return the guide's code blocks of one language."""
    return [text for name, text in _BLOCK.findall(GUIDE.read_text(encoding="utf-8")) if name == language]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example in a checkout of its own, with its packages installed from the lock file."""
    node, npm = toolchain.require("node"), toolchain.require("npm")
    assert node
    checkout = tmp_path_factory.mktemp("checkout")
    (checkout / ".venv").symlink_to(Path(sys.executable).parent.parent)
    copy = checkout / "examples/client_node"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("node_modules"))
    run = subprocess.run(
        [str(npm), "ci", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return copy


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with the quickstart's configuration."""
    with serving(tmp_path_factory.mktemp("gateway")) as running:
        yield running


def test_excerpts_are_the_example() -> None:
    """Every excerpt of the guide stands in the example word for word."""
    source = (EXAMPLE / "client.mjs").read_text(encoding="utf-8")
    excerpts = blocks("js")
    assert excerpts
    assert [excerpt for excerpt in excerpts if excerpt not in source] == []


def test_the_lock_file_names_no_registry() -> None:
    """The example installs from whatever registry the reader uses, at the pinned and hashed versions."""
    lock = (EXAMPLE / "package-lock.json").read_text(encoding="utf-8")
    assert "resolved" not in lock
    assert lock.count('"integrity"') > 2


@pytest.mark.toolchain
def test_the_commands_of_the_guide_run(gateway: RunningGateway, example: Path) -> None:
    """The guide's commands, in order, list the services, send, approve and deny as it says."""
    script = "set -eu\n" + "".join(blocks("sh"))
    chosen = "TYRUM_STATE_DIR=~/tyrum-guide\n"
    assert chosen in script
    assert chosen in blocks("console")[0], "the gateway of the first terminal has the same directory"
    environment = client_environment(gateway.state_dir)
    del environment["TYRUM_STATE_DIR"]
    # Whoever reads the guide has no scripts of ours on the path.
    environment["PATH"] = environment["PATH"].removeprefix(f"{TYRUM.parent}:")
    run = subprocess.run(
        ["bash", "-c", script.replace(chosen, f"TYRUM_STATE_DIR={gateway.state_dir}\n")],
        cwd=example.parents[1],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    for expected in (
        "tyrum.chat.v1.ChatService",
        "tyrum.approval.v1.ApprovalService",
        '"accepted"',
        '"conversations"',
        "offline model",
        "> Linux",
        "denied by operator: not today",
    ):
        assert expected in run.stdout
    written = [path for path in example.rglob("*") if path.is_file() and "node_modules" not in path.parts]
    assert [path for path in written if gateway.token.encode() in path.read_bytes()] == []


@pytest.mark.toolchain
def test_the_example_resumes_by_sequence_after_the_gateway_was_killed(example: Path, tmp_path: Path) -> None:
    """A waiting turn survives SIGKILL and a new start: the client reconnects and shows nothing twice."""
    with serving(tmp_path) as gateway:
        environment = client_environment(gateway.state_dir) | {"TYRUM_PROTOS": str(ROOT / "proto")}
        client = subprocess.Popen(
            ["node", "client.mjs", "/run uname -s"],
            cwd=example,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with reaped(client):
            assert client.stdout is not None
            shown = read_until(client.stdout.fileno(), "y, or a reason to deny:")
            gateway.restart()
            stdout, stderr = client.communicate(b"y\n", timeout=60)
        shown += stdout.decode()
        assert client.returncode == 0, stderr.decode()
        assert "connection lost; reconnecting" in stderr.decode()
        assert shown.count("Running the command.") == 1
        assert shown.count("process.run proposed") == 1
        assert "> Linux" in shown
        assert "[turn TURN_STATE_COMPLETED]" in shown


def read_until(descriptor: int, text: str) -> str:
    """Read from a pipe until it has delivered `text`; fail after 20 s."""
    deadline = time.monotonic() + 60
    data = b""
    while text.encode() not in data:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"`{text}` did not come: {data!r}"
        chunk = os.read(descriptor, 65536)
        assert chunk, f"ended before `{text}`: {data!r}"
        data += chunk
    return data.decode()
