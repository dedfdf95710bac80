"""Keys, types, limits, and how problems are told."""

from pathlib import Path

import pytest

from tests.config.files import MINIMAL, QUICKSTART, lines, problems, write
from tyrum_gateway.config import ConfigProblems, check_file

MANY = """\
version: 1
listn: {}
models:
  offline: {kind: offlin}
agents:
  default:
    model: ofline
    policy: default
    secrets: [TOKEN]
providers:
  local:
    kind: isolation
    command: [/bin/true]
    trust: operator_installed
    deployment: local_process
    start_timout: 10s
  local: {}
profiles:
  isolation:
    default: {provider: locl, wall_time: 10}
policy:
  default:
    rules:
      - {id: a, decision: alow, match: {}}
limits: {steps_per_turn: "8"}
"""


def test_every_problem_is_reported_at_once_in_order(tmp_path: Path) -> None:
    """One run names every problem of every kind, sorted by position."""
    assert lines(tmp_path, MANY) == [
        "2:1: listn: unknown key; did you mean `listen`?",
        "4:3: models.offline: `kind` must be `offline`, `scripted`, `openai` or `anthropic`; "
        "did you mean `offline`?",
        "7:12: agents.default.model: no model of this name is declared; did you mean `offline`?",
        "9:15: agents.default.secrets[0]: no secret of this name is declared; `secrets` declares none",
        "16:5: providers.local.start_timout: unknown key; did you mean `start_timeout`?",
        "17:3: providers.local: duplicate key, first at 11:3",
        "20:25: profiles.isolation.default.provider: no provider of this name is declared; "
        "did you mean `local`?",
        "20:42: profiles.isolation.default.wall_time: expected a duration with its unit, such as `30s`",
        "24:27: policy.default.rules[0].decision: expected `allow`, `require_approval` or `deny`; "
        "did you mean `allow`?",
        "25:26: limits.steps_per_turn: expected a whole number, found text; remove quotes and units",
    ]


def test_problems_have_a_machine_readable_form(tmp_path: Path) -> None:
    """A problem's JSON carries file, line, column, path, code and message."""
    (found,) = problems(tmp_path, MINIMAL + "limit: {}\n")
    assert found.as_json() == {
        "file": str(tmp_path / "tyrum.yaml"),
        "line": 8,
        "column": 1,
        "path": "limit",
        "code": "unknown_key",
        "message": "unknown key; did you mean `limits`?",
    }


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("version: 1", "version: '1'", "1:10: version: this version of Tyrum reads `version: 1`"),
        ("version: 1", "version: true", "1:10: version: this version of Tyrum reads `version: 1`"),
        ("version: 1", "version: 1.0", "1:10: version: this version of Tyrum reads `version: 1`"),
        ("version: 1\n", "", "1:1: version: required key is missing"),
        (
            "{kind: offline}",
            "{}",
            "3:3: models.offline: `kind` must be `offline`, `scripted`, `openai` or `anthropic`",
        ),
        ("{kind: offline}", "3", "3:12: models.offline: expected a mapping with `kind`, found a number"),
        ("  offline:", "  Offline:", "3:3: models.Offline: a name must match `[a-z][a-z0-9_-]{0,62}`"),
        (
            "policy: default}",
            "policy: 1}",
            "5:37: agents.default.policy: expected text, found a number; quote it",
        ),
        (", policy: default}", "}", "5:3: agents.default.policy: required key is missing"),
        (
            "  default: {model",
            "  other: {}\n  default: {model",
            "5:3: agents.other: only the agent `default` is",
        ),
        ("policy: default}", "policy: default, workspace: ../x}", "expected a relative path without `..`"),
        ("policy: default}", "policy: default, workspace: /x}", "expected a relative path without `..`"),
        (
            "policy: default}",
            "policy: default, profiles: {memory: m}}",
            "memory profiles are not available yet",
        ),
        (
            "version: 1",
            "version: 1\nstorage: {path: x}",
            "2:11: storage.path: unknown key; `storage` has no keys",
        ),
        ("version: 1", "version: 1\nlisten:", "2:1: listen: expected a mapping, found nothing"),
        ("version: 1", "version: 1\nlisten: {unix: run/x}", "2:16: listen.unix: expected an absolute path"),
        ("version: 1", f"version: 1\nlisten: {{unix: /{'x' * 107}}}", "a socket path has at most 107 bytes"),
        (
            "version: 1",
            "version: 1\nlisten: {tcp: 0.0.0.0:7460}",
            "needs TLS: add `listen.tls`",
        ),
        (
            "version: 1",
            "version: 1\nlisten: {tcp: '[::]:7460'}",
            "needs TLS: add `listen.tls`",
        ),
        (
            "version: 1",
            "version: 1\nlisten: {tcp: example.org:1}",
            "needs TLS: add `listen.tls`",
        ),
        (
            "version: 1",
            "version: 1\nlisten: {ops: 0.0.0.0:7461}",
            "2:15: listen.ops: only this machine may ask",
        ),
        (
            "version: 1",
            "version: 1\nlisten: {tls: {cert: c, key: k}}",
            "2:15: listen.tls: `tls` protects `tcp`",
        ),
        ("version: 1", "version: 1\nlisten: {tcp: 127.0.0.1:65536}", "expected HOST:PORT"),
        ("version: 1", "version: 1\nlisten: {tcp: 7460}", "listen.tcp: expected text, found a number"),
        ("version: 1", "version: 1\nlimits: {queued_per_conversation: 17}", "must be at most 16"),
        ("version: 1", "version: 1\nlimits: {steps_per_turn: 0}", "must be at least 1"),
        (
            "version: 1",
            "version: 1\nlimits: {steps_per_turn: true}",
            "expected a whole number, found a boolean",
        ),
        (
            "version: 1",
            "version: 1\nlimits: {steps_per_turn: 8.0}",
            "expected a whole number, found a number",
        ),
        ("version: 1", "version: 1\napprovals: {expiry: 31d}", "must lie between 1s and 30d"),
        ("version: 1", "version: 1\nprofiles: {memory: {}}", "memory profiles are not available yet"),
        ("version: 1", "version: 1\nprofiles: {context: {}}", "context profiles are not available yet"),
    ],
)
def test_wrong_shapes_are_explained(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """A value of the wrong shape is refused where it stands, saying what belongs there."""
    found = lines(tmp_path, MINIMAL.replace(old, new, 1))
    assert any(expected in line for line in found), found


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("kind: isolation", "kind: memory", "providers.local.kind: memory providers are not available yet"),
        ("kind: isolation", "kind: isolatoin", "providers.local.kind: expected `isolation`"),
        ("trust: operator_installed", "trust: external_party", "trust: expected `operator_installed`"),
        ("deployment: local_process", "deployment: remote", "deployment: expected `local_process`"),
        ("    trust: operator_installed\n", "", "providers.local.trust: required key is missing"),
        (
            "[tyrum-provider-local-spawn]",
            "tyrum-provider-local-spawn",
            "command: expected a list, found text",
        ),
        ("[tyrum-provider-local-spawn]", "[]", "command: must not be empty"),
        ("[tyrum-provider-local-spawn]", "[./x]", "command: expected a program's name without `/`"),
        (
            "[tyrum-provider-local-spawn]",
            "[no-such-program]",
            "no such program beside the gateway's interpreter",
        ),
        ("[tyrum-provider-local-spawn]", "[/no/such]", "command[0]: this program does not exist"),
        ("[tyrum-provider-local-spawn]", "[/etc/passwd]", "does not exist or is not executable"),
        ("trust: operator", "artifact_sha256: ABC\n    trust: operator", "artifact_sha256: must match"),
        ("trust: operator", "implementation_version: '^1'\n    trust: operator", "expected a version range"),
        (
            "provider: local",
            "provider: [local, other]",
            "isolation is exclusive: exactly one provider serves it",
        ),
        ("isolation: default", "isolation: [default, other]", "isolation is exclusive: exactly one provider"),
        ("provider: local", "provider: {a: local}", "isolation is exclusive: exactly one provider serves it"),
        ("provider: local", "provider: local\n      provider: other", "two values for one exclusive scope"),
        (
            "provider: local",
            "provider: local\n      required_claims: [net]",
            "required_claims[0]: no claim of this name is registered; the claims are `fs.read`, `fs.write`",
        ),
        (
            "provider: local",
            "provider: local\n      required_claims: [fs.read, net.non]",
            "required_claims[1]: no claim of this name is registered; did you mean `net.none`?",
        ),
        ("isolation: default", "isolation: xyz", "`profiles.isolation` declares `default`"),
        ("model: offline", "model: xyz", "no model of this name is declared; `models` declares `offline`"),
        ("policy: default", "policy: xyz", "of this name is declared; `policy` declares `default`"),
        ("provider: local", "provider: local\n      path: [bin]", "path[0]: expected an absolute path"),
        ("provider: local", "provider: local\n      path: [/bin, /bin]", "path[1]: listed twice"),
    ],
)
def test_wrong_providers_and_profiles_are_explained(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    """What a provider or profile cannot be is refused: two providers for one scope above all."""
    found = lines(tmp_path, QUICKSTART.replace(old, new, 1))
    assert any(expected in line for line in found), found


def test_bad_values_are_never_repeated(tmp_path: Path) -> None:
    """Wherever a secret was pasted by mistake, no message, representation or traceback repeats it."""
    canary = "CANARY-hunter2"
    text = QUICKSTART
    for value in (
        "model: offline",
        "policy: default",
        "isolation: default",
        "kind: isolation",
        "provider: local",
        "trust: operator_installed",
        "decision: allow",
        "program: /usr/bin/printf",
        "argv: []",
        "rest: true",
    ):
        text = text.replace(value, f"{value.partition(':')[0]}: {canary}", 1)
    text += f"secrets: {{A: {canary}, B: [{canary}]}}\n"
    text += f"limits: {{step_time: {canary}, steps_per_turn: {canary}}}\n"
    text += f"listen: {{tcp: {canary}, unix: {canary}}}\napprovals: {canary}\n"
    with pytest.raises(ConfigProblems) as caught:
        check_file(write(tmp_path, text), environment={})
    error = caught.value
    assert len(error.problems) > 15
    assert canary not in f"{error} {error!r} {error.problems!r}"
    assert error.__cause__ is None
    assert error.__context__ is None


def test_strange_keys_are_shown_safely(tmp_path: Path) -> None:
    """A key with control or very many characters is quoted and cut in the message."""
    (found,) = problems(tmp_path, MINIMAL + '"\\e[31mred' + "x" * 200 + '": 1\n')
    assert str(found.as_json()["path"]).isascii()
    assert "\x1b" not in str(found)
    assert len(str(found.as_json()["path"])) < 100


def test_very_many_problems_take_bounded_time(tmp_path: Path) -> None:
    """A file with thousands of problems ends in some hundreds of them, not in minutes."""
    rules = "".join(f"    r{number}: {{provider: nobody{number}, extra: 1}}\n" for number in range(4000))
    names = "".join(f"  p{number}: 1\n" for number in range(4000))
    found = problems(tmp_path, f"{MINIMAL}providers:\n{names}profiles:\n  isolation:\n{rules}")
    assert 200 <= len(found) <= 500
