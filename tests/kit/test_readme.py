"""What the kit's README shows to authors works as it stands."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import grpc

from tests.kit.processes import BEARER, DEADLINE, Started, configure_request, handshake_request, refusal
from tests.support import markdown
from tests.support.gateway import TYRUM, RunningGateway, serving
from tests.support.repository import ROOT
from tyrum.isolation.v1 import isolation_pb2
from tyrum_gateway.config.document import plain, read_document

README = markdown.read(Path("providers/kit/README.md"))


def block(language: str) -> str:
    """Return the page's one block of a language."""
    (found,) = (block.code for block in README.blocks if block.language == language)
    return found


def content_of(text: str) -> dict[str, object]:
    """Read YAML."""
    root = read_document(text.encode(), "f").root
    assert root is not None
    content: dict[str, object] = plain(root)
    return content


async def test_readmes_provider_works(launch: Callable[..., Started]) -> None:
    """The README's program starts, takes a configuration and answers what it has not written yet."""
    started = await launch("-c", block("python")).listening()
    assert (await started.control.Handshake(handshake_request(), timeout=DEADLINE)).proof
    await started.control.Configure(configure_request(b"{}", {}), timeout=DEADLINE, metadata=BEARER)
    posture = await started.domain.GetPosture(
        isolation_pb2.GetPostureRequest(), timeout=DEADLINE, metadata=BEARER
    )
    assert len(posture.claims) == 20
    call = started.domain.ListProcesses(
        isolation_pb2.ListProcessesRequest(), timeout=DEADLINE, metadata=BEARER
    )
    assert (await refusal(call)).code is grpc.StatusCode.INVALID_ARGUMENT


def test_readmes_provider_is_admitted(tmp_path: Path) -> None:
    """Program, configuration and commands of the README, typed as they stand, end in an admitted provider."""
    program = tmp_path / "provider.py"
    program.write_text(block("python"), encoding="utf-8")
    assert "/opt/sandbox/provider.py" in block("yaml")
    stanza = content_of(block("yaml").replace("/opt/sandbox/provider.py", str(program)))
    quickstart = content_of((ROOT / "examples/quickstart.yaml").read_text(encoding="utf-8"))
    config = tmp_path / "sandbox.yaml"
    config.write_text(json.dumps(quickstart | stanza), encoding="utf-8")

    probe, serve, explain = (shlex.split(line) for line in block("console").splitlines())
    assert serve == [".venv/bin/tyrum", "serve", "--config", config.name]
    with serving(tmp_path / "gateway", config) as gateway:
        assert "sandbox: admitted" in run(gateway, probe, config)
        told = run(gateway, explain, config)
    assert "posture" in told
    assert "NOT_ENFORCED" in told


def run(gateway: RunningGateway, words: list[str], config: Path) -> str:
    """Type a command of the page where the configuration lies; return what it prints."""
    assert words[0] == f".venv/bin/{TYRUM.name}"
    done = gateway.tyrum(*(str(config) if word == config.name else word for word in words[1:]))
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout
