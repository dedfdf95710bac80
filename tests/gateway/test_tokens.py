"""Tokens and models over real processes: what is used is bounded, kept over restarts, and told."""

import asyncio
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.gateway.test_identity import somebody
from tests.support import configs
from tests.support.client import DEADLINE, Client, connected
from tests.support.gateway import RunningGateway, serving
from tyrum.chat.v1 import event_pb2
from tyrum.run.v1 import run_pb2

MAIN = """\
version: 1
scenarios:
  - user: {prefix: ""}
    steps:
      - error: {retryable: true, message: main is down}
"""
SPARE = """\
version: 1
scenarios:
  - user: steps
    steps:
      - usage: {input: 90, output: 10}
        calls: [{tool: process.run, arguments: {argv: [tee, -a, counted], stdin: "x\\n"}}]
      - usage: {input: 1, output: 1}
        deltas: ["Never said."]
  - user: untold
    steps:
      - deltas: ["Said."]
  - user: {prefix: ""}
    steps:
      - usage: {input: 40, output: 9}
        deltas: ["Said."]
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway whose first model is never there, and whose limits are 100 tokens."""
    directory = tmp_path_factory.mktemp("tokens")
    config = configs.write(
        directory, script=MAIN, more="limits: {tokens_per_turn: 100, daily_tokens_per_principal: 100}\n"
    )
    (directory / "spare.yaml").write_text(SPARE, encoding="utf-8")
    text = config.read_text(encoding="utf-8")
    text = text.replace(
        "agents:\n", f"  spare: {{kind: scripted, script: {directory / 'spare.yaml'}}}\nagents:\n", 1
    )
    config.write_text(text.replace("model: scripted", "model: [scripted, spare]"), encoding="utf-8")
    with serving(directory, config) as running:
        yield running


async def end(client: Client, text: str) -> tuple[str, str]:
    """Take a turn; return its id, and why it failed."""
    accepted, events = await client.turn(text)
    finished = events[-1].turn_finished
    assert (finished.state == event_pb2.TURN_STATE_COMPLETED) is not bool(finished.reason)
    return accepted.turn_id, finished.reason


async def test_what_a_principal_used_today_is_refused_before_the_model_is_asked(
    gateway: RunningGateway,
) -> None:
    """Used by turns together, known after a restart, said with its renewal; another principal goes on."""
    async with connected(gateway) as admin:
        anna = await somebody(admin, "anna", "chat")
        for _ in range(2):
            assert (await end(anna, "hello"))[1] == ""
        assert (await end(anna, "untold"))[1] == "", "98 of 100 are used, and this step tells nothing"
        assert (await end(anna, "hello"))[1] == ""
        token = anna.metadata
    gateway.restart()
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date()
    async with connected(gateway) as admin:
        _, reason = await end(Client(admin.channel, token), "hello")
        assert reason == (
            "no tokens are left today: 147 of 100 are used (`limits.daily_tokens_per_principal`); "
            f"there are new ones from {tomorrow} 00:00 UTC on"
        )
        assert (await end(await somebody(admin, "bert", "chat"), "hello"))[1] == ""
    assert '"event": "tokens_spent"' in gateway.log
    assert gateway.log.count('"event": "usage_not_reported"') == 2, "once for each start"


async def test_a_turn_takes_no_step_beyond_its_tokens(gateway: RunningGateway) -> None:
    """The call of the step that used them is executed; the model is not asked again."""
    async with connected(gateway) as admin:
        _, reason = await end(await somebody(admin, "carl", "chat"), "steps")
    assert reason == (
        "the turn has used 100 tokens and may use 100 (`limits.tokens_per_turn`): "
        "none are left for another step"
    )
    assert configs.count(gateway.state_dir) == 1


async def shown(gateway: RunningGateway, turn_id: str, *options: str) -> str:
    """What `tyrum runs show` prints."""
    tyrum = Path(sys.executable).with_name("tyrum")
    line = [tyrum, "runs", "show", turn_id, "--state-dir", gateway.state_dir, *options]
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=True, timeout=DEADLINE)
    done = await asyncio.to_thread(run, line)
    return str(done.stdout)


async def test_the_registry_says_which_model_answered(gateway: RunningGateway) -> None:
    """A run names the model that it was accepted with and the one that answered, in the shell, too."""
    async with connected(gateway) as admin:
        turn_id, _ = await end(await somebody(admin, "dora", "chat"), "hello")
        request = run_pb2.GetRunRequest(run_id=turn_id)
        run = (await admin.runs.GetRun(request, metadata=admin.metadata, timeout=DEADLINE)).run
    assert (run.model, list(run.answered_by)) == ("scripted", ["spare"])
    assert "scripted, answered by spare" in await shown(gateway, turn_id)
    assert json.loads(await shown(gateway, turn_id, "--output", "json"))["answered_by"] == ["spare"]
    assert '"event": "model_passed_over"' in gateway.log
