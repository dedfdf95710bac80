"""Builders of configuration files for these tests."""

import os
from collections.abc import Mapping
from pathlib import Path

from tyrum_gateway.config import ConfigProblems, Problem, Settings, check_file, load_settings, quickstart_path

QUICKSTART = quickstart_path().read_text(encoding="utf-8")

MINIMAL = """\
version: 1
models:
  offline: {kind: offline}
agents:
  default: {model: offline, policy: default}
policy:
  default: {rules: []}
"""


def write(directory: Path, content: str | bytes) -> Path:
    """Write a configuration file and return its path."""
    path = directory / "tyrum.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def problems(
    directory: Path, content: str | bytes, environment: Mapping[str, str] | None = None
) -> tuple[Problem, ...]:
    """Return what is wrong with the content; empty when nothing is."""
    try:
        check_file(write(directory, content), environment=environment or {"PATH": os.environ["PATH"]})
    except ConfigProblems as found:
        return found.problems
    return ()


def lines(directory: Path, content: str | bytes, environment: Mapping[str, str] | None = None) -> list[str]:
    """Return what is wrong with the content as `line:column: path: message`."""
    prefix = f"{directory / 'tyrum.yaml'}:"
    return [str(problem).removeprefix(prefix) for problem in problems(directory, content, environment)]


def load(directory: Path, content: str, environment: Mapping[str, str] | None = None) -> Settings:
    """Load settings with a state directory beside the file."""
    return load_settings(
        write(directory, content),
        environment=environment or {"PATH": os.environ["PATH"]},
        state_dir=directory / "state",
    )
