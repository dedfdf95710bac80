"""The image that deploy/Dockerfile builds."""

import json
import re
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.support import toolchain
from tests.support.repository import ROOT

DOCKERFILE = ROOT / "deploy/Dockerfile"


def test_the_image_is_made_of_what_is_there_and_runs_without_root() -> None:
    """Every copied path exists and passes the ignore file; the last stage has a user, state, command."""
    text = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    passed = {
        line.removeprefix("!")
        for line in Path(f"{DOCKERFILE}.dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = [
        word for line in re.findall(r"^COPY (?!--)(.*)$", text, re.MULTILINE) for word in line.split()[:-1]
    ]
    assert set(copied) == passed
    assert [name for name in copied if not (ROOT / name).exists()] == []
    _, _, last = text.split("\nFROM ")
    uid = re.search(r"--uid (\d+)", last)
    assert uid
    assert re.search(rf"^USER {uid[1]}:{uid[1]}$", last, re.MULTILINE)
    assert "TYRUM_STATE_DIR=/var/lib/tyrum" in last
    assert json.loads(re.findall(r"^ENTRYPOINT (.*)$", last, re.MULTILINE)[0])[-1] == "tyrum"


@pytest.mark.toolchain
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_image_demonstrates_and_serves(tmp_path: Path) -> None:
    """Built and run where a daemon answers: the demonstration, then a gateway that chats, as uid 10001."""
    engine = next((name for name in ("docker", "podman") if shutil.which(name)), None)
    if engine is None or subprocess.run([engine, "info"], capture_output=True, check=False).returncode:
        pytest.skip("no container engine answers: deploy/Dockerfile was neither built nor run")
    name = f"tyrum-test-{uuid.uuid4().hex[:12]}"

    def ran(*words: str) -> str:
        return toolchain.run(engine, *words, cwd=ROOT)

    ran("build", "--file", str(DOCKERFILE), "--tag", name, ".")
    try:
        assert "everything above was verified" in ran("run", "--rm", name, "demo")
        ran("run", "--detach", "--name", name, "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL",
            "--tmpfs", "/run/tyrum:uid=10001,gid=10001,mode=700", name)  # fmt: skip
        assert ran("exec", name, "id", "-u").strip() == "10001"
        chat = "until tyrum whoami; do sleep 1; done; tyrum chat hello"
        assert "offline model" in ran("exec", name, "timeout", "60", "sh", "-c", chat)
        ran("stop", "--time", "90", name)
    finally:
        subprocess.run([engine, "rm", "--force", name], capture_output=True, check=False)
        subprocess.run([engine, "rmi", "--force", name], capture_output=True, check=False)
