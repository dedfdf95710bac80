"""The shortest conforming provider is admitted by a real gateway and answers as the contract wants."""

from collections.abc import Iterator

import pytest

from tests.support.gateway import RunningGateway, serving
from tests.support.repository import ROOT

PROGRAM = ROOT / "examples/provider_minimal/provider.py"
CONFIG = f"""\
version: 1
models: {{offline: {{kind: offline}}}}
agents:
  default: {{model: offline, policy: default, workspace: work, profiles: {{isolation: default}}}}
providers:
  minimal:
    kind: isolation
    command: [python, {PROGRAM}]
    trust: operator_installed
    deployment: local_process
profiles: {{isolation: {{default: {{provider: minimal}}}}}}
policy:
  default:
    rules:
      - id: print
        decision: allow
        author: the test
        match: {{tool: process.run, program: /usr/bin/printf, argv: [hello]}}
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway whose only provider is the example."""
    directory = tmp_path_factory.mktemp("minimal")
    config = directory / "minimal.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    with serving(directory, config) as running:
        yield running


def test_the_example_is_admitted(gateway: RunningGateway) -> None:
    """A real host takes it through every stage; what it states of its boundary is the truth."""
    told = gateway.tyrum("providers", "explain", "minimal")
    assert told.returncode == 0, told.stderr
    assert "org.example.minimal" in told.stdout
    assert told.stdout.count("NOT_ENFORCED") == 20
    assert "lifecycle: admitted" in told.stdout


def test_a_command_is_refused_with_its_words(gateway: RunningGateway) -> None:
    """A permitted call ends without execution, with the reason that the example gives."""
    said = gateway.tyrum("chat", "/run printf hello")
    assert said.returncode == 0, said.stderr
    assert "not executed" in said.stdout + said.stderr
    assert "this provider runs no processes" in said.stdout + said.stderr
