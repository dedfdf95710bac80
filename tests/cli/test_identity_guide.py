"""The guide to identity can be typed, on one machine and from another one."""

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support import configs
from tests.support.certificates import Authority
from tests.support.gateway import client_environment, serving
from tests.support.markdown import Page
from tests.support.repository import ROOT

GUIDE = "docs/guides/identity.md"


def blocks(language: str) -> Iterator[str]:
    """The guide's blocks in a language."""
    page = Page(Path(GUIDE), (ROOT / GUIDE).read_text(encoding="utf-8"))
    yield from (block.code for block in page.blocks if block.language == language)


def test_every_command_of_the_guide_works(tmp_path: Path) -> None:
    """Creating, issuing, listing and asking who one is, also over TLS as the guide configures it."""
    authority = Authority.create(tmp_path)
    server = Authority(tmp_path / "tls", authority.signer, authority.pem)
    server.directory.mkdir()
    server.issue("gateway", "localhost")
    (server.directory / "clients.pem").write_bytes(authority.pem.read_bytes())
    own = authority.issue("anna-laptop", "client.example")
    (listen,) = blocks("yaml")
    config = configs.write(tmp_path, more=listen.replace("0.0.0.0:7460", "127.0.0.1:0"))
    here, there = ([shlex.split(line) for line in block.splitlines()] for block in blocks("sh"))
    with serving(tmp_path, config) as gateway:

        def typed(words: list[str]) -> str:
            done = subprocess.run(
                words,
                cwd=tmp_path,
                env=client_environment(gateway.state_dir),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            assert done.returncode == 0, f"{words}\n{done.stderr}"
            return done.stdout

        for words in here:
            said = typed(words)
        assert "anna" in said
        addresses = json.loads((gateway.state_dir / "gateway.json").read_text(encoding="utf-8"))["addresses"]
        port = addresses[1].rpartition(":")[2]
        (words,) = there
        distant = [word.replace("gateway.example:7460", f"localhost:{port}") for word in words]
        said = typed([*distant, "--client-cert", str(own.cert), "--client-key", str(own.key)])
        assert "tls 127.0.0.1, certificate anna-laptop" in said
