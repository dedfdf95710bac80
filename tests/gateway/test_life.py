"""A gateway's life: one per state directory, tools only with a capable binding, an orderly end."""

import signal
import sys
from pathlib import Path

from tests.support import configs
from tests.support.client import connected, kinds
from tests.support.gateway import RunningGateway, serving

ADMITTED = "command: [tyrum-provider-local-spawn]\n    config: {run_as: gateway_user}"
REJECTED = f"command: [{sys.executable}, -m, tyrum_conformance.broken, wrong_proof]"


async def test_a_second_gateway_on_one_state_directory_is_refused_and_told_who_holds_it(
    tmp_path: Path,
) -> None:
    """Two writers could damage the database: the second start fails and names the first process."""
    with serving(tmp_path) as gateway:
        second = gateway.tyrum("serve", "--state-dir", str(gateway.state_dir))
        assert second.returncode == 1
        assert f"process {gateway.pid}" in second.stderr
        async with connected(gateway) as client:
            _, events = await client.turn("still there?")
        assert kinds(events)[-1] == "turn_finished"


async def test_without_a_capable_binding_the_model_is_shown_no_tool(tmp_path: Path) -> None:
    """A rejected provider is never bound: the gateway serves, and the tool does not exist for the model."""
    config = configs.write(tmp_path)
    text = config.read_text(encoding="utf-8")
    assert ADMITTED in text
    text = text.replace(ADMITTED, REJECTED).replace("model: scripted", "model: offline")
    config.write_text(text.replace("models:\n", "models:\n  offline: {kind: offline}\n"), encoding="utf-8")
    with serving(tmp_path, config) as gateway:
        async with connected(gateway) as client:
            _, events = await client.turn("/run tee -a counted")
        assert "tool_call_proposed" not in kinds(events)
        assert "not offered" in events[-2].assistant_message.text
        assert configs.count(gateway.state_dir) == 0


async def test_sigterm_lets_a_turn_end_and_leaves_nothing_running(tmp_path: Path) -> None:
    """The gateway exits 0 on SIGTERM, its announcement and its provider are gone."""
    gateway = RunningGateway(tmp_path / "state", configs.write(tmp_path))
    gateway.start()
    try:
        async with connected(gateway) as client:
            await client.turn("count")
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(60) == 0
        assert not (gateway.state_dir / "gateway.json").exists()
        assert not _processes_mentioning(str(gateway.state_dir))
    finally:
        gateway.kill()


def _processes_mentioning(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if text.encode() in entry.read_bytes():
                found.append(entry.parent.name)
        except OSError:
            continue
    return found
