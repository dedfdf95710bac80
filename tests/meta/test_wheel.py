"""What somebody has who has the wheel and no checkout."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.support import toolchain
from tests.support.gateway import RunningGateway
from tests.support.repository import ROOT


@pytest.mark.toolchain
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_installed_wheel_demonstrates_serves_and_chats(tmp_path: Path) -> None:
    """The wheel alone, in an environment of its own outside of the tree, with an extra as the hint says."""
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    environment = tmp_path / "venv"
    toolchain.run(Path(sys.executable).resolve(), "-m", "venv", environment, cwd=tmp_path)
    toolchain.run(
        *(environment / "bin/python", "-m", "pip", "--disable-pip-version-check", "--quiet", "install"),
        *("--constraint", ROOT / "requirements.lock", f"./{Path(built).name}[openai]"),
        cwd=tmp_path,
    )
    tyrum = environment / "bin/tyrum"
    clean = {"HOME": str(tmp_path), "PATH": os.defpath, "COLUMNS": "200"}

    def ran(*arguments: str) -> str:
        run = subprocess.run(
            [tyrum, *arguments],
            cwd=tmp_path,
            env=clean,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert run.returncode == 0, run.stdout[-2000:] + run.stderr
        assert not [line for line in run.stderr.splitlines() if not line.startswith("continue: ")]
        return run.stdout

    assert "everything above was verified" in ran("demo")
    gateway = RunningGateway(tmp_path / "state", launcher=(str(tyrum), "serve"))
    gateway.start()
    try:
        assert "offline model" in ran("chat", "hello", "--state-dir", str(gateway.state_dir))
        listed = json.loads(ran("providers", "list", "--state-dir", str(gateway.state_dir), "-o", "json"))
        assert str(ROOT) not in json.dumps(listed)
    finally:
        assert gateway.stop() == 0
