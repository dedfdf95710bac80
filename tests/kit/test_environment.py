"""Providers that were started wrongly say so and never listen."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.processes import TOKEN_LINE, Started, answers
from tyrum_provider_kit.environment import Misconfigured, free_socket_path, read_environment


def _variables(directory: Path) -> dict[str, str]:
    return {
        "TYRUM_PROVIDER_SOCKET": str(directory / "p.sock"),
        "TYRUM_PROVIDER_INSTANCE_ID": "inst_" + "0" * 26,
        "TYRUM_PROVIDER_STATE_DIR": str(directory),
        "TYRUM_PROVIDER_RUNTIME_DIR": str(directory),
        "TYRUM_PROVIDER_CONTROL_VERSIONS": "1-3",
    }


def test_complete_environment_is_read(directory: Path) -> None:
    """The five variables become one value."""
    environment = read_environment(_variables(directory))
    assert environment.socket == directory / "p.sock"
    assert environment.control_versions == (1, 3)
    assert environment.provider_name == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TYRUM_PROVIDER_SOCKET", "relative.sock"),
        ("TYRUM_PROVIDER_SOCKET", "/nonexistent/p.sock"),
        ("TYRUM_PROVIDER_SOCKET", "/tmp/" + "x" * 103),
        ("TYRUM_PROVIDER_SOCKET", ""),
        ("TYRUM_PROVIDER_INSTANCE_ID", "inst_short"),
        ("TYRUM_PROVIDER_INSTANCE_ID", ""),
        ("TYRUM_PROVIDER_STATE_DIR", "/nonexistent"),
        ("TYRUM_PROVIDER_STATE_DIR", "."),
        ("TYRUM_PROVIDER_RUNTIME_DIR", ""),
        ("TYRUM_PROVIDER_CONTROL_VERSIONS", ""),
        ("TYRUM_PROVIDER_CONTROL_VERSIONS", "0-1"),
        ("TYRUM_PROVIDER_CONTROL_VERSIONS", "2-1"),
        ("TYRUM_PROVIDER_CONTROL_VERSIONS", "1-1-1"),
    ],
)
def test_wrong_variables_are_named(directory: Path, name: str, value: str) -> None:
    """A missing or malformed variable is refused by its name."""
    with pytest.raises(Misconfigured, match=name):
        read_environment(_variables(directory) | {name: value})


def test_longest_possible_path_is_accepted(directory: Path) -> None:
    """A path of 107 bytes fits into a socket address, one of 108 does not."""
    room = 107 - len(str(directory)) - 1
    read_environment(_variables(directory) | {"TYRUM_PROVIDER_SOCKET": str(directory / ("x" * room))})
    with pytest.raises(Misconfigured, match="108 bytes"):
        read_environment(
            _variables(directory) | {"TYRUM_PROVIDER_SOCKET": str(directory / ("x" * (room + 1)))}
        )


@pytest.mark.parametrize(
    ("variables", "token_line", "complaint"),
    [
        ({"TYRUM_PROVIDER_STATE_DIR": ""}, TOKEN_LINE, "TYRUM_PROVIDER_STATE_DIR is not set"),
        ({"TYRUM_PROVIDER_SOCKET": "/tmp/" + "x" * 120}, TOKEN_LINE, "TYRUM_PROVIDER_SOCKET is 125 bytes"),
        ({}, b"not-a-token-SECRET-text\n", "first line is not a token"),
        ({}, b"SECRET-text" * 50, "longer than 128 bytes"),
    ],
)
async def test_wrong_starts_exit_with_two(
    launch: Callable[..., Started], variables: dict[str, str], token_line: bytes, complaint: str
) -> None:
    """A provider that was started wrongly exits with status 2 and one log line that says what to fix."""
    started = launch(variables=variables, token_line=token_line)
    assert await started.ended() == 2
    (line,) = started.log().splitlines()
    assert complaint in json.loads(line)["message"]
    assert "SECRET" not in line


async def test_stdin_without_token_exits_with_two(launch: Callable[..., Started]) -> None:
    """A host that dies before it wrote the token leaves no provider behind."""
    started = launch(token_line=b"")
    assert started.process.stdin is not None
    started.process.stdin.close()
    assert await started.ended() == 2
    assert "ended before the token line" in started.log()


async def test_stale_socket_is_replaced(launch: Callable[..., Started], directory: Path) -> None:
    """The socket file of a killed predecessor does not keep a provider from listening."""
    path = directory / "stale.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as predecessor:
        predecessor.bind(str(path))
    assert path.is_socket()
    started = launch(variables={"TYRUM_PROVIDER_SOCKET": str(path)})
    started.socket = path
    await started.listening()
    assert started.process.poll() is None


async def test_living_socket_is_not_stolen(launch: Callable[..., Started], sample: Started) -> None:
    """A provider refuses a path on which another process listens, and leaves that one alone."""
    second = launch(variables={"TYRUM_PROVIDER_SOCKET": str(sample.socket)})
    assert await second.ended() == 2
    assert "another process listens" in second.log()
    assert answers(sample.socket)


def test_ordinary_file_is_not_removed(directory: Path) -> None:
    """A file that is no socket is never removed from the path."""
    path = directory / "p.sock"
    path.write_text("precious")
    with pytest.raises(Misconfigured, match="not a socket"):
        free_socket_path(path)
    assert path.read_text() == "precious"


async def test_socket_is_for_the_owner_alone(sample: Started) -> None:
    """The socket file grants nothing to group and others, whatever umask the host had."""
    assert sample.socket.stat().st_mode & 0o077 == 0


async def test_paths_are_taken_literally(launch: Callable[..., Started], directory: Path) -> None:
    """Characters that mean something in an address are part of the path."""
    path = directory / "%41 50% off #1?.sock"
    started = launch(variables={"TYRUM_PROVIDER_SOCKET": str(path)})
    started.socket = path
    await started.listening()
