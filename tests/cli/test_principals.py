"""`tyrum principals` and `tyrum whoami` against a running gateway: what is printed, kept and refused."""

import asyncio
import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import connected
from tests.support.gateway import RunningGateway, serving
from tests.support.questions import asked
from tyrum_gateway.cli.commands import run
from tyrum_gateway.cli.failure import ExitCode


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One gateway for the file."""
    with serving(tmp_path_factory.mktemp("principals")) as running:
        yield running


def test_the_life_of_a_principal(gateway: RunningGateway, tmp_path: Path) -> None:
    """Create, issue into a private file, use it, list without the secret, revoke, and it is refused."""
    created = gateway.tyrum("principals", "create", "anna", "--role", "chat", "--role", "approver")
    assert created.returncode == 0, created.stderr
    assert "tyrum principals tokens issue anna" in created.stderr
    file = tmp_path / "anna.token"
    issued = gateway.tyrum(
        "principals", "tokens", "issue", "anna", "-l", "laptop", "--expires-in", "12h", "--save", str(file)
    )
    assert issued.returncode == 0, issued.stderr
    secret = file.read_text(encoding="ascii").strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret.startswith("tyt_")
    assert secret not in issued.stdout + issued.stderr
    me = json.loads(gateway.tyrum("whoami", "--token-file", str(file), "--output", "json").stdout)
    assert me["principal"]["name"] == "anna"
    assert me["principal"]["roles"] == ["ROLE_CHAT", "ROLE_APPROVER"]
    listed = gateway.tyrum("principals", "tokens", "list", "anna")
    assert me["token"]["token_id"] in listed.stdout
    assert "laptop" in listed.stdout
    assert " anna " in listed.stdout
    assert secret not in listed.stdout
    revoked = gateway.tyrum("principals", "tokens", "revoke", me["token"]["token_id"])
    assert revoked.returncode == 0, revoked.stderr
    refused = gateway.tyrum("whoami", "--token-file", str(file))
    assert refused.returncode == ExitCode.NOT_AUTHORIZED


def test_a_token_is_printed_once_and_alone(gateway: RunningGateway) -> None:
    """Without `--save` stdout holds the token and nothing else, so that it can be piped into a file."""
    created = gateway.tyrum("principals", "create", "bert")
    assert "`bert` has no role: it can ask who it is (tyrum whoami) and do nothing else" in created.stderr
    assert "auditor, admin: tyrum principals roles bert --role ROLE" in created.stderr
    issued = gateway.tyrum("principals", "tokens", "issue", "bert", "--label", "pipe")
    (secret,) = issued.stdout.splitlines()
    assert secret.startswith("tyt_")
    assert "not shown again" in issued.stderr


def test_an_existing_file_is_left_alone(gateway: RunningGateway, tmp_path: Path) -> None:
    """`--save` overwrites nothing, and then no token is made; nor is a file left when it is refused."""
    file = tmp_path / "kept"
    file.write_text("mine")
    gateway.tyrum("principals", "create", "carl")
    refused = gateway.tyrum("principals", "tokens", "issue", "carl", "-l", "x", "--save", str(file))
    assert refused.returncode == ExitCode.FAILURE
    assert "hint: no token was made" in refused.stderr
    assert file.read_text() == "mine"
    tokens = gateway.tyrum("principals", "tokens", "list", "carl", "--output", "json")
    assert json.loads(tokens.stdout) == []
    gone = tmp_path / "gone"
    unknown = gateway.tyrum("principals", "tokens", "issue", "nobody", "-l", "x", "--save", str(gone))
    assert unknown.returncode == ExitCode.FAILURE
    assert not gone.exists()
    gateway.tyrum("principals", "tokens", "issue", "carl", "-l", "x", "--save", str(gone))
    gateway.tyrum("principals", "disable", "carl")
    assert "carl (disabled)" in gateway.tyrum("principals", "tokens", "list", "carl").stdout


def test_an_approver_who_may_not_permit_for_good_is_told_what_to_do(
    gateway: RunningGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the role operator `--always` ends with 4 and names both ways on; approving once works."""
    place = ["--state-dir", str(gateway.state_dir)]
    file = str(tmp_path / "token")
    assert run(["principals", "create", "dora", "--role", "approver", *place]) == ExitCode.OK
    assert run(["principals", "tokens", "issue", "dora", "-l", "x", "--save", file, *place]) == ExitCode.OK

    async def ask() -> str:
        async with connected(gateway) as client:
            return (await asked(client, "/run uname -s")).approvals[0]

    approval = asyncio.run(ask())
    answer = ["approvals", "approve", approval, "--token-file", file, *place]
    capsys.readouterr()
    assert run([*answer, "--always"]) == ExitCode.NOT_AUTHORIZED
    *_, error, hint = capsys.readouterr().err.splitlines()
    assert error == "error: permitting for good needs the role `operator` besides"
    assert "without --always" in hint
    assert f"the roles approver and operator: tyrum approvals approve {approval} --always" in hint
    assert run(answer) == ExitCode.OK
    assert f"{approval} approved by dora" in capsys.readouterr().out


def test_the_last_administrator_stays(gateway: RunningGateway) -> None:
    """Disabling the only administrator is refused, with what to do first."""
    refused = gateway.tyrum("principals", "disable", "operator")
    assert refused.returncode == ExitCode.FAILURE
    assert "nobody who may manage principals" in refused.stderr
    assert "hint: tyrum principals create NAME --role admin" in refused.stderr
    listed = json.loads(gateway.tyrum("principals", "list", "--output", "json").stdout)
    operator = next(item for item in listed if item["name"] == "operator")
    assert operator["roles"][-1] == "ROLE_ADMIN"


@pytest.mark.parametrize(
    "arguments",
    [
        ("principals", "roles", "operator"),
        ("principals", "roles", "operator", "--none", "--role", "chat"),
        ("principals", "create", "x", "--role", "root"),
        ("principals", "tokens", "issue", "x", "--label", "y", "--expires-in", "tomorrow"),
        ("principals", "tokens", "issue", "x"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    """A missing, contradicting or unknown value ends with 2 before anything is asked."""
    assert run(list(arguments)) == ExitCode.USAGE
