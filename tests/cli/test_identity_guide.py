"""The guide to identity can be typed, on one machine and from another one."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support import configs
from tests.support.gateway import client_environment, serving
from tests.support.markdown import Page
from tests.support.repository import ROOT
from tests.support.terminal import on_terminal
from tests.support.toolchain import require

GUIDE = "docs/guides/identity.md"
CARRIED = ("ca.pem", "ria-laptop.pem", "ria-laptop.key")


def blocks(language: str) -> Iterator[str]:
    """The guide's blocks in a language."""
    page = Page(Path(GUIDE), (ROOT / GUIDE).read_text(encoding="utf-8"))
    yield from (block.code for block in page.blocks if block.language == language)


def typed(command: str, directory: Path, environment: Mapping[str, str]) -> str:
    """Type a command; return what it says."""
    done = subprocess.run(
        ["/bin/sh", "-euc", command],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


@pytest.mark.toolchain
@pytest.mark.timeout(180)
def test_every_command_of_the_guide_works(tmp_path: Path) -> None:
    """Principals and tokens; certificates by openssl, and an approver elsewhere who sees and answers."""
    require("openssl")
    (listen,) = blocks("yaml")
    first, recipe, grant, watch, answer = blocks("sh")
    here = client_environment(tmp_path / "state") | {"TERM": "xterm", "NO_COLOR": "1"}
    typed(recipe.replace("gateway.example", "localhost"), tmp_path, here)
    config = configs.write(tmp_path, more=listen.replace("0.0.0.0:7460", "127.0.0.1:0"))
    with serving(tmp_path, config) as gateway:
        assert "anna" in typed(first, tmp_path, here)
        typed(grant, tmp_path, here)
        addresses = json.loads((gateway.state_dir / "gateway.json").read_text(encoding="utf-8"))["addresses"]
        port = addresses[1].rpartition(":")[2]
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        shutil.copy(tmp_path / "ria.token", elsewhere)
        for name in CARRIED:
            shutil.copy(tmp_path / "tls" / name, elsewhere)
        there = here | {"TYRUM_STATE_DIR": str(elsewhere), "HOME": str(elsewhere)}
        watch, answer = (text.replace("example:7460", f"example:{port}") for text in (watch, answer))
        watch, answer = (text.replace("gateway.example", "localhost") for text in (watch, answer))
        export, watch = watch.splitlines()
        there |= dict(item.split("=", 1) for item in shlex.split(export)[1:])
        moved = f"cd {shlex.quote(str(elsewhere))} && exec {watch}"
        with on_terminal(["/bin/sh", "-c", moved], there) as screen:
            screen.wait_for("watching; Ctrl-C ends this")
            with on_terminal(["tyrum", "chat", "ask"], here) as chat:
                approval = re.search(r"appr_\w{26}", screen.wait_for("tee -a asked"))
                assert approval
                chat.wait_for("Approve exactly this?")
                assert "tee -a asked" in typed(answer.replace("appr_…", approval[0]), elsewhere, there)
                screen.wait_for("approved by ria")
                assert chat.end() == 0
        log = typed("tyrum audit list --kind approval.resolved --output json", tmp_path, here)
        assert "tls 127.0.0.1, certificate ria-laptop" in log
