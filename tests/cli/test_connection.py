"""Finding the gateway: where it is, as whom, and never in the clear across a network."""

import json
from pathlib import Path

import pytest

from tyrum_gateway.cli.connection import Target, checked_address, find, flags
from tyrum_gateway.cli.failure import ExitCode, Failure


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory as a running gateway leaves it."""
    monkeypatch.delenv("TYRUM_TOKEN_FILE", raising=False)
    (tmp_path / "gateway.json").write_text(
        json.dumps({"address": "unix:/run/x.sock", "pid": 1, "boot_id": "b"})
    )
    token = tmp_path / "operator.token"
    token.write_text("secret-token\n")
    token.chmod(0o600)
    return tmp_path


def test_the_state_directory_names_address_and_token(state: Path) -> None:
    """Without flags everything comes from the state directory, and the token never shows up in a repr."""
    target = find(state, None)
    assert target == Target("unix:/run/x.sock", "secret-token", state)
    assert "secret" not in repr(target)


def test_an_explicit_address_and_token_file_win(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--address and TYRUM_TOKEN_FILE replace what the state directory says."""
    other = state / "other.token"
    other.write_text("other")
    other.chmod(0o600)
    monkeypatch.setenv("TYRUM_TOKEN_FILE", str(other))
    assert find(state, "127.0.0.1:7460") == Target("127.0.0.1:7460", "other", state, announced=False)


def test_a_command_for_somebody_else_leaves_out_who_the_caller_is(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds the same gateway, with neither the caller's token nor their certificate."""
    named = {"ca": Path("/ca"), "client_cert": Path("/c"), "client_key": Path("/k"), "token_file": Path("/t")}
    monkeypatch.setattr("tyrum_gateway.cli.connection.given", lambda: named)
    target = Target("gateway.example:443", "secret", state, announced=False)
    others = f" --state-dir {state} --address gateway.example:443 --ca /ca"
    assert flags(target, caller=False) == others
    assert flags(target) == f"{others} --client-cert /c --client-key /k --token-file /t"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_token_that_others_can_read_is_refused(state: Path, mode: int) -> None:
    """A token file is used only while its owner alone can read it; the error says how to mend it."""
    token = state / "operator.token"
    token.chmod(mode)
    with pytest.raises(Failure, match="can be read by others") as caught:
        find(state, None)
    assert caught.value.code is ExitCode.NOT_AUTHORIZED
    assert caught.value.hint == f"chmod 600 {token}"


@pytest.mark.parametrize("path", ["/dev/null", "."])
def test_what_is_no_file_gets_no_hint_to_change_its_mode(
    state: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A device or a directory is not mended by its mode: the hint asks for the file of the token."""
    monkeypatch.setenv("TYRUM_TOKEN_FILE", path)
    with pytest.raises(Failure, match="is not a regular file") as caught:
        find(state, None)
    assert caught.value.hint.startswith("name the file in which your token is")


@pytest.mark.parametrize("content", ["", "two words", "line\nbreak", "\x1b[2J", "ü"])
def test_a_file_that_holds_no_token_is_refused(state: Path, content: str) -> None:
    """Whatever cannot be sent as a bearer token is named as such, without its content."""
    (state / "operator.token").write_text(content)
    with pytest.raises(Failure, match="token") as caught:
        find(state, None)
    assert not content.strip() or content not in caught.value.message


@pytest.mark.parametrize("written", ["", "{", "[]", '{"pid": 1}', '{"address": 5}'])
def test_without_a_usable_announcement_no_gateway_runs(state: Path, written: str) -> None:
    """A missing or damaged gateway.json means that nothing runs there, and the hint starts a gateway."""
    (state / "gateway.json").write_text(written)
    with pytest.raises(Failure, match="no gateway runs") as caught:
        find(state, None)
    assert caught.value.code is ExitCode.FAILURE
    assert caught.value.hint == f"start one: tyrum serve --state-dir {state}"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("unix:/a/b.sock", "unix:/a/b.sock"),
        ("/a/b.sock", "unix:/a/b.sock"),
        ("127.0.0.1:7460", "127.0.0.1:7460"),
        ("[::1]:7460", "[::1]:7460"),
        ("localhost:1", "localhost:1"),
    ],
)
def test_local_addresses_are_accepted(given: str, used: str) -> None:
    """Sockets and loopback addresses are what a token may be sent to."""
    assert checked_address(given) == used


@pytest.mark.parametrize(
    "address", ["10.0.0.1:7460", "gateway.example:443", "dns:///x:1", "0.0.0.0:7460", "x"]
)
def test_a_token_is_never_sent_across_a_network(address: str) -> None:
    """Without an authority for TLS, an address that is not of this machine is a usage error."""
    with pytest.raises(Failure, match="neither a socket nor a loopback address with its port") as caught:
        checked_address(address)
    assert caught.value.code is ExitCode.USAGE
