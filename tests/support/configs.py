"""Configurations for gateway tests: a scripted model, local_spawn, and rules that a test states."""

from pathlib import Path

TEMPLATE = """\
version: 1
models:
  scripted: {{kind: scripted, script: {script}}}
agents:
  default:
    model: scripted
    policy: default
    workspace: workspaces/default
    profiles: {{isolation: default}}
providers:
  local:
    kind: isolation
    command: [tyrum-provider-local-spawn]
    config: {{run_as: gateway_user}}
    trust: operator_installed
    deployment: local_process
    start_timeout: 30s
profiles:
  isolation:
    default: {{provider: local{profile}}}
policy:
  default:
    rules:
{rules}
{more}
"""

COUNTING_RULE = """\
      - id: count
        decision: allow
        author: the test
        match: {tool: process.run, program: /usr/bin/tee, argv: [-a, counted], stdin: true}
"""

COUNTING_SCRIPT = """\
version: 1
scenarios:
  - user: count
    steps:
      - deltas: ["Counting. "]
        calls:
          - {tool: process.run, arguments: {argv: [tee, -a, counted], stdin: "x\\n"}}
      - deltas: ["Done."]
  - user: ask
    steps:
      - calls:
          - {tool: process.run, arguments: {argv: [tee, -a, asked], stdin: "x\\n"}}
      - deltas: ["Answered."]
  - user: {prefix: ""}
    steps:
      - deltas: ["Said."]
"""
"""`count` runs a command that counts its own executions; `ask` asks before it does the same."""


def write(
    directory: Path,
    *,
    script: str = COUNTING_SCRIPT,
    rules: str = COUNTING_RULE,
    profile: str = "",
    more: str = "",
) -> Path:
    """Write configuration and script; return the configuration's path.

    Args:
        directory: Where to.
        script: What the model says.
        rules: Items of the only bundle's rules.
        profile: Further keys of the isolation profile, as they stand in a flow mapping.
        more: Further sections.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "script.yaml").write_text(script, encoding="utf-8")
    config = directory / "config.yaml"
    text = TEMPLATE.format(
        script=directory / "script.yaml", rules=rules, profile=f", {profile}" if profile else "", more=more
    )
    config.write_text(text, encoding="utf-8")
    return config


def count(state_dir: Path, name: str = "counted") -> int:
    """How often the counting command ran."""
    file = state_dir / "workspaces/default" / name
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0
