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
