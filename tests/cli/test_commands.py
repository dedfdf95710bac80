"""The installed command line against a real gateway: what it prints, and the exit codes it promises."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import cli_reference
from tests.support.gateway import TYRUM, RunningGateway, client_environment, reaped, serving
from tyrum_gateway import cli
from tyrum_gateway.cli.topics import ENVIRONMENT
from tyrum_gateway.config import quickstart_path

_NO_ID = "0" * 26


def without_gateway(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `tyrum` where no gateway runs."""
    return subprocess.run(
        [str(TYRUM), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=client_environment(directory) | environment,
        timeout=60,
        check=False,
    )


def lines(text: str) -> list[dict[str, Any]]:
    """Parse JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def waiting(gateway: RunningGateway, conversation: str) -> dict[str, Any]:
    """Poll until one approval of a conversation waits, and return it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        run = gateway.tyrum("approvals", "list", "--conversation", conversation, "-o", "json")
        if found := json.loads(run.stdout):
            return dict(found[0])
    raise AssertionError("no approval waits")


def asking(gateway: RunningGateway, command: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """Send a message that has to wait, and return the waiting client with the approval."""
    client = subprocess.Popen(
        [str(TYRUM), "chat", command, "-o", "jsonl"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=client_environment(gateway.state_dir),
    )
    assert client.stdout is not None
    accepted = json.loads(client.stdout.readline())["accepted"]
    return client, waiting(gateway, accepted["conversation_id"])


def test_a_message_is_answered_and_can_be_read_back(gateway: RunningGateway) -> None:
    """`chat TEXT` prints the answer on stdout and on stderr how to go on; the transcript agrees."""
    run = gateway.tyrum("chat", "hello")
    assert run.returncode == 0
    assert "offline model" in run.stdout
    conversation = re.search(r"--conversation (conv_\w+)", run.stderr)
    assert conversation

    again = gateway.tyrum("chat", "and again", "--conversation", conversation[1], "-o", "json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["conversation_id"] == conversation[1]

    shown = gateway.tyrum("conversations", "show", conversation[1])
    assert shown.returncode == 0
    assert shown.stdout.index("|  hello") < shown.stdout.index("|  and again")
    assert shown.stdout.count("[turn completed]") == 2
    assert run.stdout.strip() in shown.stdout
    events = lines(gateway.tyrum("conversations", "show", conversation[1], "-o", "jsonl").stdout)
    assert [int(event["sequence"]) for event in events] == list(range(1, len(events) + 1))


def test_a_permitted_call_shows_its_stations(gateway: RunningGateway) -> None:
    """Proposed, allowed, running and finished each have their line, and exit code and output are told."""
    run = gateway.tyrum("chat", "/run printf 'a\\nb'")
    assert run.returncode == 0
    stations = re.findall(r"^\[process\.run (\w+)\]", run.stdout, re.MULTILINE)
    assert stations == ["proposed", "allowed", "running", "finished"]
    assert "succeeded: exit 0" in run.stdout
    assert "> a\n> b" in run.stdout


def test_command_output_never_reaches_the_terminal_raw(gateway: RunningGateway) -> None:
    """Escape sequences that a command prints are shown as text, in every form of output."""
    for form in ("text", "json"):
        run = gateway.tyrum("chat", r"/run printf '\033[2J\233owned\r\n'", "-o", form)
        assert run.returncode == 0
        assert "owned" in run.stdout
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", run.stdout + run.stderr)


def test_a_waiting_client_names_the_commands_and_continues_when_approved_elsewhere(
    gateway: RunningGateway,
) -> None:
    """Without a terminal `chat` says which commands answer; an approval from elsewhere lets it go on."""
    client, approval = asking(gateway, "/run uname -s")
    with reaped(client):
        shown = gateway.tyrum("approvals", "show", approval["approval_id"])
        assert "/usr/bin/uname" in shown.stdout
        assert approval["digest"] in shown.stdout
        for fact in ("/usr/bin/uname", "uname -s", "20 of 20 claims"):
            assert shown.stdout.count(fact) == 1
        full = gateway.tyrum("approvals", "show", approval["approval_id"], "--subject").stdout
        assert full.startswith(shown.stdout)
        assert json.loads(full.partition("Subject\n")[2])["program"]["path"] == "/usr/bin/uname"
        approved = gateway.tyrum("approvals", "approve", approval["approval_id"])
        assert approved.returncode == 0
        assert f"approving {approval['digest']}" in approved.stderr
        assert "approved by operator" in approved.stdout
        stdout, stderr = client.communicate(timeout=60)
    assert client.returncode == 0
    assert f"tyrum approvals approve {approval['approval_id']}" in stderr
    assert "Linux" in stdout
    assert lines(stdout)[-1]["event"]["turn_finished"]["state"] == "TURN_STATE_COMPLETED"


def test_a_denied_approval_ends_with_5_and_its_reason_reaches_the_model(gateway: RunningGateway) -> None:
    """The waiting client exits with 5, the answer quotes the reason, and a second answer is refused."""
    client, approval = asking(gateway, "/run touch denied")
    with reaped(client):
        denied = gateway.tyrum("approvals", "deny", approval["approval_id"], "--reason", "house rules")
        assert denied.returncode == 0
        stdout, _ = client.communicate(timeout=60)
    assert client.returncode == 5
    events = [item["event"] for item in lines(stdout) if "event" in item]
    said = [event["assistant_message"]["text"] for event in events if "assistant_message" in event]
    assert "house rules" in said[-1]

    late = gateway.tyrum("approvals", "approve", approval["approval_id"])
    assert late.returncode == 1
    assert "already" in late.stderr
    listed = json.loads(gateway.tyrum("approvals", "list", "--all", "-o", "json").stdout)
    assert {item["approval_id"]: item["outcome"] for item in listed}[approval["approval_id"]] == (
        "APPROVAL_OUTCOME_DENIED"
    )


def test_approving_another_digest_is_refused(gateway: RunningGateway) -> None:
    """A digest that is not the approval's changes nothing: the call keeps waiting until it is cancelled."""
    client, approval = asking(gateway, "/run touch other")
    with reaped(client):
        wrong = "sha256:" + "0" * 64
        run = gateway.tyrum("approvals", "approve", approval["approval_id"], "--digest", wrong)
        assert run.returncode == 1
        assert "hint: read it again" in run.stderr
        cancelled = gateway.tyrum("conversations", "cancel", approval["turn_id"], "--reason", "enough")
        assert cancelled.stdout == f"{approval['turn_id']} cancelled\n"
        client.communicate(timeout=60)
    assert client.returncode == 1


def test_a_call_that_a_rule_denies_is_no_refused_approval(gateway: RunningGateway) -> None:
    """Nobody was asked, so the turn that completes with the model's answer exits with 0."""
    run = gateway.tyrum("chat", "/run rm -rf x")
    assert run.returncode == 0
    assert "[process.run denied] by rule `no-removal`" in run.stdout


def test_a_message_comes_from_stdin(gateway: RunningGateway) -> None:
    """A piped message is sent as it is; an empty one is a usage error."""
    assert "> via pipe" in gateway.tyrum("chat", stdin="/run printf 'via pipe'\n").stdout
    empty = gateway.tyrum("chat", "-", stdin="")
    assert (empty.returncode, empty.stderr.splitlines()[0]) == (2, "error: no message")


def test_providers_are_listed_and_explained(gateway: RunningGateway) -> None:
    """Operators see lifecycle, six states, admission stages and claims; an unknown name is an error."""
    listed = gateway.tyrum("providers", "list").stdout.splitlines()
    assert listed[0].split() == [
        "NAME", "KIND", "LIFECYCLE", "INSTALLED", "CONFIGURED", "READY", "HEALTHY", "CAPABLE", "DEGRADED",
    ]  # fmt: skip
    assert listed[1].split()[:3] == ["local", "isolation", "admitted"]
    explained = gateway.tyrum("providers", "explain", "local")
    assert explained.returncode == 0
    for expected in ("handshake", "passed", "NOT_ENFORCED", "healthy"):
        assert expected in explained.stdout
    unknown = gateway.tyrum("providers", "explain", "nobody")
    assert (unknown.returncode, unknown.stderr) == (
        1,
        "error: unknown provider `nobody`\nhint: tyrum providers list\n",
    )


@pytest.mark.parametrize(
    "command",
    [
        ("conversations", "list"),
        ("approvals", "list", "--all"),
        ("providers", "list"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_machine_output_parses(gateway: RunningGateway, command: tuple[str, ...]) -> None:
    """Every command that promises JSON prints nothing but JSON on stdout, in both forms the same."""
    free = re.compile(r"[\d,]+ MiB")  # others write to the same disk meanwhile
    document = json.loads(free.sub("", gateway.tyrum(*command, "--output", "json").stdout))
    items = lines(free.sub("", gateway.tyrum(*command, "--output", "jsonl").stdout))
    assert items == (document if isinstance(document, list) else [document])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("conversations", "show", f"conv_{_NO_ID}"), 1, "unknown conversation"),
        (("conversations", "show", "nonsense"), 2, "`CONVERSATION` must be"),
        (("approvals", "approve", f"appr_{_NO_ID}"), 1, "unknown approval"),
        (("chat", "hi", "--conversation", f"conv_{_NO_ID}"), 1, "unknown conversation"),
        (("chat", "hi", "--address", "10.0.0.1:1"), 2, "neither a socket nor a loopback"),
        (("chat", "hi", "--output", "xml"), 2, "xml"),
        (("conversations", "lst"), 2, "no such command"),
    ],
)
def test_errors_name_the_problem_and_keep_their_code(
    gateway: RunningGateway, arguments: tuple[str, ...], code: int, message: str
) -> None:
    """Failures print `error:` on stderr, nothing on stdout, and exit as documented."""
    run = gateway.tyrum(*arguments)
    assert (run.returncode, run.stdout) == (code, "")
    assert run.stderr.startswith("error: ")
    assert message in run.stderr


def test_a_foreign_token_is_not_authenticated(gateway: RunningGateway, tmp_path: Path) -> None:
    """A token that the gateway does not know exits with 4."""
    token = tmp_path / "token"
    token.write_text("x" * 43)
    token.chmod(0o600)
    run = without_gateway(gateway.state_dir, "conversations", "list", TYRUM_TOKEN_FILE=str(token))
    assert run.returncode == 4
    assert "error: " in run.stderr
    assert "hint: " in run.stderr


def test_without_a_gateway_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    """Where nothing runs, and where a killed gateway left its announcement, the hint starts a gateway."""
    run = without_gateway(tmp_path, "chat", "hi")
    assert run.returncode == 1
    assert (
        run.stderr
        == f"error: no gateway runs with state directory `{tmp_path}`\nhint: start one: tyrum serve\n"
    )

    (tmp_path / "gateway.json").write_text(json.dumps({"address": f"unix:{tmp_path}/gone.sock", "pid": 1}))
    token = tmp_path / "operator.token"
    token.write_text("x" * 43)
    token.chmod(0o600)
    stale = without_gateway(tmp_path, "conversations", "list")
    assert stale.returncode == 1
    assert stale.stderr.startswith(
        f"error: no gateway answers at `unix:{tmp_path}/gone.sock`\nhint: start one:"
    )


def test_clients_survive_the_death_of_the_gateway(tmp_path: Path) -> None:
    """A waiting turn goes on at the new start; whoever follows it sees every event once, in order."""
    with serving(tmp_path) as gateway:
        client, approval = asking(gateway, "/run uname -s")
        watcher = subprocess.Popen(
            [str(TYRUM), "conversations", "watch", approval["conversation_id"], "-o", "jsonl"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=client_environment(gateway.state_dir),
        )
        with reaped(client, watcher):
            assert watcher.stdout is not None
            watched = [watcher.stdout.readline()]
            gateway.restart()
            assert gateway.tyrum("approvals", "approve", approval["approval_id"]).returncode == 0
            stdout, stderr = client.communicate(timeout=60)
            while "turn_finished" not in watched[-1]:
                watched.append(watcher.stdout.readline())
                assert watched[-1]
            watcher.send_signal(signal.SIGINT)
            assert watcher.wait(60) == 130
        assert client.returncode == 0, stderr
        assert stderr.index("connection lost; reconnecting\n") < stderr.index("reconnected\n")
        seen = sequences(stdout)
        assert seen == list(range(2, len(seen) + 2))
        assert sequences("".join(watched)) == [1, *seen]


def sequences(output: str) -> list[int]:
    """List the sequences of the durable events in a stream of JSON lines."""
    return [int(item["event"]["sequence"]) for item in lines(output) if "event" in item]


def test_a_second_gateway_on_one_state_directory_is_refused(gateway: RunningGateway) -> None:
    """The error names the process that holds the directory; the first gateway is not disturbed."""
    run = gateway.tyrum("serve")
    assert run.returncode == 1
    assert f"error: another gateway (process {gateway.pid}) uses the state directory" in run.stderr
    assert gateway.tyrum("chat", "hello").returncode == 0


def test_an_invalid_configuration_ends_with_3_and_positions(tmp_path: Path) -> None:
    """`serve` prints every problem with its position and does not start."""
    config = tmp_path / "gateway.yaml"
    config.write_text("version: 1\nmodles: {}\n")
    run = without_gateway(tmp_path / "state", "serve", "--config", str(config))
    assert run.returncode == 3
    assert f"{config}:2:1: modles: " in run.stderr
    assert f"hint: tyrum config validate {config}" in run.stderr


def test_sigterm_drains_and_takes_the_announcement_back(tmp_path: Path) -> None:
    """SIGTERM ends the gateway with 0; the state directory then says that none runs."""
    with serving(tmp_path) as gateway:
        assert gateway.stop() == 0
        assert "Talk to it: tyrum chat" in gateway.log
        assert not (gateway.state_dir / "gateway.json").exists()


def test_doctor_fails_for_a_directory_that_others_can_enter(tmp_path: Path) -> None:
    """A finding that needs an operator exits with 1 and names one fix."""
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    state.chmod(0o755)
    run = without_gateway(state, "doctor")
    assert run.returncode == 1
    assert f"fail  state directory: `{state}` can be entered by others (mode 0755)" in run.stdout
    assert f"fix: chmod 700 {state}" in run.stdout


def test_doctor_says_what_the_boundary_is_worth(gateway: RunningGateway, tmp_path: Path) -> None:
    """A boundary that holds nothing is a warning with a pointer; without a gateway it is called unseen."""
    run = gateway.tyrum("doctor")
    assert run.returncode == 0
    assert (
        "warn  boundary of local: commands run as the gateway's user; nothing is confined: 20 of 20 claims "
        "are NOT_ENFORCED\n      fix: tyrum providers explain local\n"
    ) in run.stdout
    without = without_gateway(tmp_path, "doctor")
    assert without.returncode == 0
    assert (
        "warn  gateway: none runs with this state directory; what a provider's boundary is" in without.stdout
    )


def test_doctor_checks_the_file_that_is_served(tmp_path: Path) -> None:
    """Without --config it is the running gateway's own file; another file is checked with a warning."""
    config = tmp_path / "own.yaml"
    config.write_text(quickstart_path().read_text(encoding="utf-8"), encoding="utf-8")
    with serving(tmp_path, config) as gateway:
        assert f"ok    configuration: `{config}`\n" in gateway.tyrum("doctor").stdout
        other = gateway.tyrum("doctor", "--config", str(quickstart_path())).stdout
        assert f"warn  configuration: the gateway serves `{config}`, and `{quickstart_path()}` is" in other
        assert f"fix: tyrum doctor --config {config}\n" in other


def test_doctor_names_what_a_provider_lacks(tmp_path: Path) -> None:
    """An invalid configuration is one failed check that leads to `config validate`."""
    config = tmp_path / "gateway.yaml"
    config.write_text("version: 1\n")
    run = without_gateway(tmp_path / "state", "doctor", "--config", str(config))
    assert run.returncode == 1
    assert f"fix: tyrum config validate {config}" in run.stdout


def test_exported_contracts_are_those_that_are_installed(tmp_path: Path) -> None:
    """`proto export` writes every .proto, google.rpc, the image and the digests; all compile from there."""
    run = without_gateway(tmp_path, "proto", "export", str(tmp_path / "out"))
    assert run.returncode == 0
    source = Path(__file__).resolve().parents[2] / "proto"
    exported = {
        path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    assert {path.relative_to(source) for path in source.rglob("*.proto")} <= exported
    errors = {path for path in exported if path.parent == Path("google/rpc")}
    assert {path.name for path in errors} == {"error_details.proto", "status.proto"}
    for path in exported - errors:
        assert (tmp_path / "out" / path).read_bytes() == (source / path).read_bytes()
    names = {path.name for path in exported}
    assert {"image.binpb", "digests.json"} <= names

    buf = shutil.which("buf", path=str(TYRUM.parent))
    assert buf
    built = subprocess.run(
        [buf, "build", str(tmp_path / "out"), "-o", os.devnull], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    """`tyrum --help` loads neither grpc nor database nor pydantic; a mistyped command gets a suggestion."""
    code = (
        "import sys; from tyrum_gateway.cli.commands import run; run(['--help'])\n"
        "heavy = {'grpc', 'sqlalchemy', 'pydantic', 'alembic', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    python = TYRUM.parent / "python"
    run = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    mistyped = subprocess.run([str(TYRUM), "aproval"], capture_output=True, text=True, check=False)
    assert mistyped.returncode == 2
    assert f"Did you mean 'approvals'?\nhint: {TYRUM} --help" in mistyped.stderr


def test_the_reference_page_is_current() -> None:
    """docs/reference/cli.md says what the commands say."""
    assert cli_reference.PATH.read_text(encoding="utf-8") == cli_reference.reference(), (
        "run `python -m tests.support.cli_reference` and commit the result"
    )


def test_the_environment_topic_names_every_variable_that_is_read() -> None:
    """A TYRUM_ variable that the command line reads is explained by `tyrum help environment`."""
    sources = Path(cli.__file__).parent.glob("*.py")
    read = {
        name
        for path in sources
        for name in re.findall(r'"(TYRUM_[A-Z_]+\w)"', path.read_text(encoding="utf-8"))
    }
    assert read <= set(ENVIRONMENT)
    assert read
