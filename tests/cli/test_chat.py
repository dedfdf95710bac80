"""`tyrum chat`: coming into a conversation, and leaving it."""

import json
import signal
import subprocess
import sys

import pytest

from tests.support.gateway import TYRUM, RunningGateway, client_environment, reaped
from tyrum_gateway.cli.commands import run


def interrupted(_prompt: str) -> str:
    """Press Ctrl-C instead of writing a message."""
    raise KeyboardInterrupt


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch, gateway: RunningGateway) -> None:
    """A prompt of the gateway at which somebody presses Ctrl-C."""
    monkeypatch.setenv("TYRUM_STATE_DIR", str(gateway.state_dir))
    monkeypatch.delenv("TYRUM_TOKEN_FILE", raising=False)
    monkeypatch.setattr("builtins.input", interrupted)


@pytest.mark.usefixtures("prompt")
def test_a_conversation_is_looked_up_before_the_prompt_and_named_behind_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody writes to a conversation that is not there; Ctrl-C at the prompt says how to continue."""
    capsys.readouterr()
    assert run(["chat", "hello", "-o", "json"]) == 0
    conversation = json.loads(capsys.readouterr().out)["conversation_id"]
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert run(["chat", "-c", "conv_" + "0" * 26]) == 1
    told = capsys.readouterr().err
    assert told.startswith("error: unknown conversation")
    assert "Write a message" not in told
    assert run(["chat", "-c", conversation]) == 130
    assert capsys.readouterr().err.endswith(f"continue: tyrum chat --conversation {conversation}\n")


def test_a_turn_that_was_left_is_a_whole_document(gateway: RunningGateway) -> None:
    """Ctrl-C while `chat -o json` waits prints what was seen of the turn, and exits with 130."""
    client = subprocess.Popen(
        [str(TYRUM), "chat", "/run touch left", "-o", "json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=client_environment(gateway.state_dir),
    )
    with reaped(client):
        assert client.stderr is not None
        assert client.stderr.readline().startswith("waiting for approval ")
        client.send_signal(signal.SIGINT)
        document = json.loads(client.communicate(timeout=60)[0])
    assert client.returncode == 130
    assert document["state"] == "TURN_STATE_UNSPECIFIED"
    assert any("approval_requested" in event for event in document["events"])
    cancel = ["conversations", "cancel", document["turn_id"], "--state-dir", str(gateway.state_dir)]
    assert run(cancel) == 0


def test_a_queued_message_says_behind_what_it_waits(gateway: RunningGateway) -> None:
    """A message behind a turn that waits for an approval names both, and the commands that answer it."""
    environment = client_environment(gateway.state_dir)
    first = subprocess.Popen(
        [str(TYRUM), "chat", "/run touch first", "-o", "jsonl"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with reaped(first):
        assert first.stdout is not None
        assert first.stderr is not None
        accepted = json.loads(first.stdout.readline())["accepted"]
        approval = first.stderr.readline().split()[3].rstrip(";")
        second = subprocess.Popen(
            [str(TYRUM), "chat", "hello", "-c", accepted["conversation_id"]],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        with reaped(second):
            assert second.stderr is not None
            told = [second.stderr.readline() for _ in range(5)]
            assert told[0].startswith(
                f"queued behind {accepted['turn_id']} of this conversation, which waits for an"
            )
            assert told[1].startswith(f"waiting for approval {approval};")
            assert f"tyrum approvals deny {approval} --reason TEXT\n" in told[4]
            assert run(["approvals", "deny", approval, "--state-dir", str(gateway.state_dir)]) == 0
            assert second.wait(60) == 0
