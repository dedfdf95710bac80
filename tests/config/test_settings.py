"""What the rest of the gateway receives."""

import dataclasses
import re
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.config.files import MINIMAL, QUICKSTART, lines, load
from tyrum_gateway.config import OfflineModelSettings, ScriptedModelSettings, TcpAddress
from tyrum_gateway.config.providers import provider_specs
from tyrum_gateway.config.quantities import parse_duration, parse_size
from tyrum_gateway.domain.policy import AnyArgument, Decision, Effect, Literal, Prefix, Target, evaluate
from tyrum_provider_host import SecretUnresolved


def test_the_smallest_file_has_every_default(tmp_path: Path) -> None:
    """Three roots are enough, and what they leave out has its default."""
    settings = load(tmp_path, MINIMAL)
    assert settings.models == {"offline": OfflineModelSettings()}
    assert settings.agents["default"].isolation_profile is None
    assert settings.agents["default"].workspace == tmp_path / "state/workspaces/default"
    assert (settings.listen.unix, settings.listen.tcp) == (None, None)
    assert settings.approval_expiry == timedelta(hours=24)
    assert settings.limits.queued_per_conversation == 16
    assert settings.limits.unfinished_turns_per_principal == 256


def test_values_arrive_parsed(tmp_path: Path) -> None:
    """Durations, sizes, addresses and paths are values by the time anyone uses them."""
    (tmp_path / "steps.yaml").touch()
    text = QUICKSTART.replace("kind: offline", "kind: scripted\n    script: steps.yaml", 1).replace(
        "provider: local",
        "provider: local\n      wall_time: 90s\n      output: 64MiB\n      kill_grace: 500ms",
        1,
    )
    settings = load(tmp_path, text + "listen: {tcp: '[::1]:0'}\n")
    profile = settings.isolation_profiles["default"]
    assert (profile.wall_time, profile.kill_grace) == (timedelta(seconds=90), timedelta(milliseconds=500))
    assert profile.output_bytes == 64 * 1024 * 1024
    assert profile.path == (Path("/usr/local/bin"), Path("/usr/bin"), Path("/bin"))
    assert settings.models["offline"] == ScriptedModelSettings(tmp_path / "steps.yaml")
    assert settings.listen.tcp == TcpAddress("::1", 0)


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    """Nobody changes the selection after the start."""
    settings = load(tmp_path, QUICKSTART)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.providers = {}  # type: ignore[misc]  # the assignment is the point
    with pytest.raises(TypeError):
        settings.providers["other"] = settings.providers["local"]  # type: ignore[index]  # as above


def test_a_program_is_found_beside_the_interpreter_first(tmp_path: Path) -> None:
    """A bare name means the program installed with the gateway, whatever PATH holds."""
    impostor = tmp_path / "tyrum-provider-local-spawn"
    impostor.touch(mode=0o755)
    settings = load(tmp_path, QUICKSTART, {"PATH": str(tmp_path)})
    assert settings.providers["local"].command == (
        str(Path(sys.executable).parent / "tyrum-provider-local-spawn"),
    )


def test_a_program_elsewhere_is_found_on_path(tmp_path: Path) -> None:
    """A bare name that is not beside the interpreter is resolved on PATH."""
    (tmp_path / "my-provider").touch(mode=0o755)
    text = QUICKSTART.replace("tyrum-provider-local-spawn", "my-provider, --flag", 1)
    settings = load(tmp_path, text, {"PATH": str(tmp_path)})
    assert settings.providers["local"].command == (str(tmp_path / "my-provider"), "--flag")


def test_a_missing_script_is_placed(tmp_path: Path) -> None:
    """A scripted model without its script is refused before anything starts."""
    text = MINIMAL.replace("{kind: offline}", "{kind: scripted, script: nope.yaml}")
    assert lines(tmp_path, text) == ["3:37: models.offline.script: this file does not exist"]


@settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 999_999_999), st.sampled_from([("ms", 0.001), ("s", 1), ("m", 60), ("h", 3600)]))
def test_durations_parse(number: int, unit: tuple[str, float]) -> None:
    """A whole number with a unit is that duration."""
    assert parse_duration(f"{number}{unit[0]}").total_seconds() == pytest.approx(number * unit[1])


@pytest.mark.parametrize(
    "text", ["", "30", "s", "1.5s", "-1s", "30 s", "30S", "1h30m", "٣s", "9999999999s", "30s\n"]
)
def test_what_is_no_duration(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(ValueError, match="such as `30s`"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "64", "64MB", "64mib", "1.5GiB", "-1B", "64 MiB", "٣B"])
def test_what_is_no_size(text: str) -> None:
    """A size without a binary unit is refused with an example."""
    with pytest.raises(ValueError, match="such as `64MiB`"):
        parse_size(text)


def test_sizes_parse() -> None:
    """Binary units are powers of 1024."""
    assert [parse_size(f"1{unit}") for unit in ("B", "KiB", "MiB", "GiB", "TiB")] == [
        1024**n for n in range(5)
    ]


RULES = """\
policy:
  default:
    rules:
      - id: commit
        decision: allow
        author: ops
        reason: local commits
        may_start_others: true
        match:
          tool: process.run
          program: /usr//bin/tee
          argv: [commit, {prefix: "--author="}, {any: true}]
          rest: true
          cwd: sub/
          env: [LC_ALL]
          stdin: true
          secrets: [TOKEN]
      - {id: nothing-else, decision: deny, reason: no, match: {effect: state_changing}}
"""


def test_rules_become_the_domains_rules(tmp_path: Path) -> None:
    """Every condition of a rule arrives, with literals and patterns as different types."""
    text = MINIMAL.partition("policy:\n  default: {")[0] + RULES + "secrets: {TOKEN: '${env:TOKEN}'}\n"
    bundle = load(tmp_path, text, {"TOKEN": "x"}).policies["default"]
    allow, deny = bundle.rules
    assert (allow.rule_id, allow.decision, allow.author, allow.tool) == (
        "commit",
        Decision.ALLOW,
        "ops",
        "process.run",
    )
    assert allow.argv == (Literal("commit"), Prefix("--author="), AnyArgument())
    assert (allow.rest, allow.cwd, allow.program, allow.stdin) == (True, "sub", "/usr/bin/tee", True)
    assert (allow.env, allow.secrets) == (frozenset({"LC_ALL"}), frozenset({"TOKEN"}))
    assert (deny.stdin, deny.rest, deny.env) == (False, False, frozenset())
    assert (deny.decision, deny.effect, deny.argv, deny.author) == (
        Decision.DENY,
        Effect.STATE_CHANGING,
        None,
        "",
    )


@pytest.mark.parametrize(
    ("program", "decision"),
    [
        ("/usr/bin/printf", Decision.ALLOW),
        ("/usr/bin/rm", Decision.DENY),
        ("/usr/bin/touch", Decision.REQUIRE_APPROVAL),
    ],
)
def test_the_quickstart_has_one_rule_of_each_sort(tmp_path: Path, program: str, decision: Decision) -> None:
    """The quickstart lets one program through, refuses one, and asks about the rest."""
    bundle = load(tmp_path, QUICKSTART).policies["default"]
    target = Target("process.run", Effect.STATE_CHANGING, program=program, argv=(program, "y"))
    assert evaluate(bundle, target).decision is decision


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (
            "{id: a, decision: allow, match: {tool: process.run, program: /bin/x}}",
            "say in `author` who answers for it",
        ),
        (
            "{id: a, decision: allow, author: me, match: {tool: process.run}}",
            "`match.program` must say which program",
        ),
        (
            "{id: a, decision: allow, author: me, match: {program: /bin/x}}",
            "`match.tool` must say which tool",
        ),
        ("{id: a, decision: allow, author: me, match: {}}", "`match.program` must say which program"),
        (
            "{id: a, decision: allow, author: me, match: {tool: process.run, program: x}}",
            "expected an absolute path",
        ),
        (
            "{id: a, decision: allow, match: {tool: process.run, effect: read_only}}",
            "this rule can never match",
        ),
        ("{id: a, decision: deny, match: {tool: process.rum}}", "expected `process.run`"),
        ("{id: a, decision: deny, match: {env: [A]}}", "on any other it has no effect"),
        ("{id: a, decision: deny, match: {replaceable: true}}", "`replaceable` widens an allow rule"),
        (
            "{id: a, decision: allow, author: me, match: {tool: process.run, program: /usr/bin/printf, "
            'argv: [{prefix: "https://u@h/"}]}}',
            "match.argv[0].prefix: this looks like a URL and allows none: it has user info",
        ),
        ("{id: a, decision: deny, may_start_others: true, match: {}}", "`may_start_others` widens an allow"),
        ("{id: a, decision: deny, match: {rest: true}}", "`rest` extends `argv`"),
        (
            "{id: a, decision: deny, match: {argv: [{prefx: x}]}}",
            "argv[0].prefx: unknown key; did you mean `prefix`?",
        ),
        ("{id: a, decision: deny, match: {argv: [{any: false}]}}", "only `true` means something"),
        ("{id: a, decision: deny, match: {argv: [3]}}", "expected text for exactly this argument"),
        (
            "{id: a, decision: deny, match: {}}, {id: a, decision: deny, match: {}}",
            "a rule of this id is at 7:26",
        ),
        ("{id: a, decision: deny}", "rules[0].match: required key is missing"),
        (
            "{id: a, decision: deny, match: {agent: defualt}}",
            "no agent of this name is declared; did you mean",
        ),
        ("{id: a, decision: deny, match: {shell: false}}", "only `true` means something"),
        (
            "{id: a, decision: allow, author: me, match: {tool: process.run, program: /bin/x, shell: true}}",
            "an allow never matches a call that a shell runs",
        ),
        (
            "{id: a, decision: deny, match: {shell: true, program: /usr/bin/rm}}",
            "the program is bash, so that",
        ),
        (
            "{id: a, decision: deny, match: {shell: true, argv: [rm], rest: true}}",
            "text and no arguments, so",
        ),
        ("{id: a, decision: deny, match: {cwd: /srv}}", "match.cwd: expected a relative path without `..`"),
        ("{id: a, decision: deny, match: {effect: none}}", "match.effect: expected `read_only` or"),
        (
            "{id: a, decision: allow, author: me, match: {tool: process.run, program: /x, env: [LD_AUDIT]}}",
            "match.env[0]: programs obey a variable of this name as code",
        ),
    ],
)
def test_rules_that_cannot_stand_are_refused(tmp_path: Path, rule: str, expected: str) -> None:
    """An allow that is too wide or that nobody answers for is refused, and a rule without effect too."""
    found = lines(tmp_path, MINIMAL.replace("rules: []", f"rules: [{rule}]"))
    assert any(expected in line for line in found), found


@pytest.mark.parametrize(
    ("match", "refused"),
    [
        ("program: /usr/bin/python3.11", True),
        ("program: /usr/bin/git, argv: [status], rest: true", True),
        ("program: /usr/bin/git, argv: [log, {any: true}]", True),
        ("program: /usr/bin/find, argv: [{prefix: x}]", True),
        ("program: /bin/x86_64-linux-gnu-gcc-12, argv: [{any: true}]", True),
        ("program: /bin/bash, argv: [], stdin: true", True),
        ("program: /usr/bin/git, argv: [status, --short]", False),
        ("program: /opt/python3.12, argv: [-V], rest: false, stdin: false", False),
        ("program: /opt/wc, rest: false", True),
        ("program: /usr/bin/wc, rest: false, stdin: true", False),
        ("program: /usr/bin/printf, argv: [{prefix: a}, {any: true}], rest: true", False),
        ("program: /usr/bin/tee, argv: [notes], stdin: true", False),
        ("program: /usr/bin/tee, argv: [{any: true}]", True),
        ("program: /usr/bin/xdg-user-dir, argv: [{any: true}]", True),
        ("program: /usr/sbin/debugfs, argv: [], stdin: true", True),
        ("program: /usr/bin/dpkg-architecture, argv: [], rest: true", True),
        ("program: /usr/bin/json_pp, argv: [{prefix: -}]", True),
        ("program: /usr/bin/json_pp, argv: [-f, json]", False),
    ],
)
def test_an_allow_for_what_starts_others_leaves_nothing_open(
    tmp_path: Path, match: str, refused: bool
) -> None:
    """Only what is known to start nothing is allowed open arguments or input, unless its author answers."""
    rule = f"{{id: a, decision: allow, author: me, match: {{tool: process.run, {match}}}}}"
    answered = rule.replace("author: me", "author: me, may_start_others: true")
    refusal = re.compile(r"policy.default.rules\[0\].match.program: this program (may start|starts) what its")
    for text, wrong in ((rule, refused), (answered, False)):
        found = lines(tmp_path, MINIMAL.replace("rules: []", f"rules: [{text}]"))
        assert any(refusal.search(line) for line in found) is wrong, found


def test_rule_ids_are_unique_across_what_holds_together(tmp_path: Path) -> None:
    """A decision names one rule, so that no bundle may repeat an id of the deployment's."""
    both = "default: {rules: [{id: a, decision: deny, match: {}}]}"
    text = MINIMAL.replace("default: {rules: []}", f"{both}\n  {both.replace('default', 'deployment')}")
    (found,) = lines(tmp_path, text)
    assert "7:26: policy.default.rules[0].id: bundle `deployment` has a rule of this id" in found


def test_an_allow_for_reading_needs_no_author(tmp_path: Path) -> None:
    """Only a standing approval of a state change needs somebody to answer for it."""
    rule = "{id: a, decision: allow, match: {effect: read_only}}"
    assert not lines(tmp_path, MINIMAL.replace("rules: []", f"rules: [{rule}]"))


@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_a_rule_for_a_link_is_refused(tmp_path: Path, decision: str) -> None:
    """A rule that names a link would never match what the kernel resolved, so it is refused."""
    (tmp_path / "tool").symlink_to("/usr/bin/printf")
    match = f"{{tool: process.run, program: {tmp_path}/tool}}"
    rule = f"{{id: a, decision: {decision}, author: me, match: {match}}}"
    (found,) = lines(tmp_path, MINIMAL.replace("rules: []", f"rules: [{rule}]"))
    assert "a link never matches: programs are resolved first, and this one is `/usr/bin/printf`" in found


def test_providers_reach_the_host_as_written(tmp_path: Path) -> None:
    """The host gets each provider's record, with secrets that are looked up when they are projected."""
    text = QUICKSTART.replace(
        "trust:", "secrets: {token: TOKEN}\n    implementation_version: '>=0.1,<1'\n    trust:", 1
    )
    environment = {"TOKEN": "one"}
    (spec,) = provider_specs(load(tmp_path, text + "secrets: {TOKEN: '${env:TOKEN}'}\n", environment))
    assert (spec.name, spec.kind, dict(spec.config)) == ("local", "isolation", {"run_as": "gateway_user"})
    assert (spec.implementation_range, spec.start_timeout) == (">=0.1,<1", 10.0)
    resolve = spec.secrets["token"]
    assert callable(resolve)
    environment["TOKEN"] = "two"
    assert resolve().reveal() == "two"
    del environment["TOKEN"]
    with pytest.raises(SecretUnresolved, match="`TOKEN` is not set"):
        resolve()
