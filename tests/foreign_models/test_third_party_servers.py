"""Conversations through two model servers that nobody here wrote, in both protocols.

aimock (npm) answers from fixtures; LiteLLM's proxy (PyPI, in an environment of its own) asks it and
translates. Both come through their registries' clients and stay in a cache outside the tree.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import configs, toolchain
from tests.support.client import connected, finished
from tests.support.gateway import serving
from tyrum.chat.v1 import event_pb2

pytestmark = pytest.mark.toolchain

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tyrum-toolchains"
AIMOCK, LITELLM = "1.43.0", "1.108.7"
KEY = "sk-tyrum-test-9f3a6c1e77d2450b"
TURNS = 20
STARTING = 400.0
"""Seconds in which a server has to listen; LiteLLM loads for a minute on a busy machine."""


def answers() -> str:
    """Write what aimock says: in each turn a call, and after its result a text."""
    fixtures = []
    for number in range(TURNS):
        match = {"userMessage": f"turn {number} please"}
        call = {"argv": ["tee", "-a", "counted"], "stdin": f"{number}\n"}
        calls = {"toolCalls": [{"name": "process_run", "arguments": call}]}
        fixtures.append({"match": match | {"hasToolResult": False}, "response": calls})
        fixtures.append(
            {"match": match | {"hasToolResult": True}, "response": {"content": f"Done {number}."}}
        )
    return json.dumps({"fixtures": fixtures})


@contextmanager
def listening(directory: Path, port: int, *command: str | Path) -> Iterator[None]:
    """Run a server until it listens; end it afterwards."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
        "PATH": toolchain.search_path(),
        "LITELLM_MASTER_KEY": KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    with (directory / f"{port}.log").open("wb") as log:
        words = [str(word) for word in command]
        server = subprocess.Popen(
            words, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            until = time.monotonic() + STARTING
            while not answers_at(port):
                assert server.poll() is None, (directory / f"{port}.log").read_text()[-4000:]
                assert time.monotonic() < until, (directory / f"{port}.log").read_text()[-4000:]
                time.sleep(0.2)
            yield
        finally:
            server.terminate()
            server.wait(30)


def answers_at(port: int) -> bool:
    """Tell whether something listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """Find a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Run aimock; give its port."""
    node, npm = toolchain.require("node"), toolchain.require("npm")
    place, directory, port = CACHE / f"aimock-{AIMOCK}", tmp_path_factory.mktemp("aimock"), free_port()
    program = place / "node_modules/@copilotkit/aimock/dist/cli.js"
    if not program.exists():
        place.mkdir(parents=True, exist_ok=True)
        package = f"@copilotkit/aimock@{AIMOCK}"
        toolchain.run(npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", package, cwd=place)
    (directory / "answers.json").write_text(answers())
    with listening(directory, port, node, program, "-p", str(port), "-f", "answers.json"):
        yield port


@pytest.fixture(scope="module")
def litellm(aimock: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Run LiteLLM's proxy before aimock; give its port."""
    place, directory, port = CACHE / f"litellm-{LITELLM}", tmp_path_factory.mktemp("litellm"), free_port()
    if not (place / "whole").exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        toolchain.run(sys.executable, "-m", "venv", "--clear", place, cwd=place.parent)
        package = f"litellm[proxy]=={LITELLM}"
        toolchain.run(place / "bin/pip", "install", "-q", package, cwd=place, timeout=1200)
        (place / "whole").touch()
    upstream = {
        "model": "hosted_vllm/made-up",
        "api_base": f"http://127.0.0.1:{aimock}/v1",
        "api_key": "none",
    }
    models = {"model_list": [{"model_name": "made-up", "litellm_params": upstream}]}
    (directory / "config.yaml").write_text(json.dumps(models))
    command = (place / "bin/litellm", "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port))
    with listening(directory, port, *command):
        yield port


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
@pytest.mark.parametrize("name", ["aimock", "litellm"])
async def test_a_conversation_of_twenty_turns_with_tools(
    name: str, protocol: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Every turn makes a call, which runs once, and ends with the answer to its result."""
    port: int = request.getfixturevalue(name)
    config = configs.write(tmp_path, rules=configs.COUNTING_RULE, more="secrets: {K: '${env:PLANTED_KEY}'}\n")
    text = config.read_text(encoding="utf-8")
    scripted = f"{{kind: scripted, script: {tmp_path / 'script.yaml'}}}"
    base_url = f"http://127.0.0.1:{port}{'/v1' if protocol == 'openai' else ''}"
    asked = f"{{kind: {protocol}, model: made-up, base_url: '{base_url}', api_key: K}}"
    assert scripted in text
    config.write_text(text.replace(scripted, asked), encoding="utf-8")
    with serving(tmp_path, config, {"PLANTED_KEY": KEY}) as gateway:
        async with connected(gateway) as client:
            conversation = ""
            for number in range(TURNS):
                accepted, events = await client.turn(f"turn {number} please", conversation)
                conversation = accepted.conversation_id
                assert [call.state for call in finished(events)] == [event_pb2.CALL_STATE_SUCCEEDED], (
                    gateway.log
                )
                said = [
                    event.assistant_message.text for event in events if event.HasField("assistant_message")
                ]
                assert said[-1] == f"Done {number}."
        counted = (gateway.state_dir / "workspaces/default/counted").read_text()
    assert counted == "".join(f"{number}\n" for number in range(TURNS))
