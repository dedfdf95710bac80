"""`tyrum policy test` and `explain` as an operator runs them, in the process of the test."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.config.files import MINIMAL, QUICKSTART
from tests.support.markdown import Page
from tests.support.repository import ROOT
from tyrum_gateway.cli.commands import run as run_command
from tyrum_gateway.config.document import plain, read_document

RULES = """\
rules:
  - id: read
    decision: allow
    author: ops
    match: {tool: process.run, program: /usr/bin/head}
  - id: count
    decision: allow
    author: ops
    match: {tool: process.run, program: /usr/bin/wc, stdin: true}
  - id: after-reading
    decision: require_approval
    match: {provenance: untrusted, program: /usr/bin/wc}
  - id: no-rm
    decision: deny
    reason: nothing is removed here
    match: {tool: process.run, program: /usr/bin/rm}
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `tyrum policy …` and return exit code, standard output and standard error."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = run_command(["policy", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A file with only rules."""
    path = tmp_path / "rules.yaml"
    path.write_text(RULES, encoding="utf-8")
    return path


def cases(directory: Path, *lines: str) -> Path:
    """Write cases, one a line."""
    path = directory / "cases.yaml"
    path.write_text("cases:\n" + "".join(f"  - {line}\n" for line in lines), encoding="utf-8")
    return path


def explanation(run: Run, rules: Path, call: str, *more: str) -> dict[str, Any]:
    """Explain a call as JSON."""
    code, out, err = run("explain", "process.run", call, "--bundle", rules, "--output", "jsonl", *more)
    assert (code, err) == (0, "")
    told: dict[str, Any] = json.loads(out)
    return told


def test_cases_as_expected_pass(run: Run, rules: Path, tmp_path: Path) -> None:
    """Calls in every form, with agent, provenance and rule, are judged as in a gateway."""
    path = cases(
        tmp_path,
        "{argv: [head, '-5', a], expect: allow, rule: read}",
        "{shell: 'head -5 a', cwd: sub/dir, expect: allow, rule: read}",
        "{shell: 'head a | wc -l', expect: allow, rule: 'read,count'}",
        "{shell: 'head a | wc -l', provenance: untrusted, expect: require_approval, rule: after-reading}",
        "{arguments: {argv: [wc], stdin: x, timeout_ms: 5}, agent: other, expect: allow}",
        "{shell: 'head $(rm x)', expect: deny, rule: no-rm}",
        "{argv: [head], env: {LD_PRELOAD: x}, expect: require_approval, rule: default.state_changing}",
        "{argv: [head], secrets: [TOKEN], expect: require_approval}",
        "{argv: [no-such-program], expect: invalid}",
        "{argv: [head], cwd: ../.., expect: invalid}",
        "{tool: memory.write, arguments: {}, expect: require_approval}",
    )
    assert run("test", path, "--bundle", rules) == (0, f"{path}: 11 cases as expected\n", "")


def test_each_difference_is_told_by_its_place(run: Run, rules: Path, tmp_path: Path) -> None:
    """What differs from the expectation is one line, and the exit code is 1."""
    path = cases(
        tmp_path,
        "{name: removes, argv: [rm, x], expect: allow}",
        "{argv: [head], expect: allow, rule: count}",
        "{argv: [head], expect: allow}",
    )
    assert run("test", path, "--bundle", rules) == (
        1,
        f"{path}:2:5: removes: expected allow, got deny by no-rm (nothing is removed here)\n"
        f'{path}:3:5: {{"argv": ["head"]}}: expected allow by count, got allow by read (rule `read`)\n',
        "error: 2 of 3 cases differ\nhint: tyrum policy explain TOOL CALL\n",
    )
    code, out, _ = run("test", path, "--bundle", rules, "-o", "json")
    told = json.loads(out)
    assert (code, told["cases"], len(told["differences"])) == (1, 3, 2)
    assert told["differences"][0]["decision"] == "deny"
    _, out, _ = run("test", path, "--bundle", rules, "-o", "jsonl")
    assert [json.loads(line)["line"] for line in out.splitlines()] == [2, 3]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{argv: [head], expect: alow}", "cases[0].expect: expected"),
        ("{argv: [head], shell: x, expect: allow}", "exactly one of `argv`, `shell` and `arguments`"),
        ("{expect: allow}", "exactly one of `argv`, `shell` and `arguments`"),
        ("{arguments: {argv: [a]}, cwd: b, expect: allow}", "`cwd` belongs there"),
        ("{argv: [head], expct: allow}", "cases[0].expct: unknown key; did you mean `expect`?"),
        ("{argv: head, expect: allow}", "cases[0].argv: expected a list, found text"),
        ("", "cases[0]: expected a mapping, found nothing"),
    ],
)
def test_a_bad_file_of_cases_is_refused(
    run: Run, rules: Path, tmp_path: Path, line: str, expected: str
) -> None:
    """Mistakes in cases are told by position, nothing is judged, and the exit code is 3."""
    code, out, err = run("test", cases(tmp_path, line), "--bundle", rules)
    assert (code, err.splitlines()[-1].endswith("in the file")) == (3, True)
    assert expected in out


def test_bad_rules_are_refused(run: Run, tmp_path: Path) -> None:
    """Rules alone are checked as strictly as in a configuration, with paths from their own root."""
    bad = tmp_path / "bad.yaml"
    allow = "{id: a, decision: allow, author: x, match: {tool: process.run, program: /usr/bin/env}}"
    bad.write_text(f"rules: [{allow}, {{id: a, decision: deny, match: {{}}}}]\n", encoding="utf-8")
    code, out, err = run("explain", "process.run", "head", "--bundle", bad)
    assert (code, err) == (3, "error: 2 problems in the file\n")
    assert "rules[0].match.program: this program starts what its arguments" in out
    assert "rules[1].id: a rule of this id is at 1:14" in out
    assert run("test", tmp_path / "none.yaml", "--bundle", tmp_path / "none.yaml")[0] == 3


@pytest.mark.parametrize(
    ("text", "place", "fix"),
    [
        ("policy: {default: {rules: []}}\n", "1:1: policy", "leave out `policy` and `default` above `rules`"),
        ("version: 1\npolicy: {a: {rules: []}, b: {}}\n", "2:1: policy", "leave out `policy` and `a` above"),
        ("policy:\n", "1:1: policy", "leave out `policy` and the bundle's name above `rules`"),
        ("# mine\nown: {rules: []}\n", "2:1: own", "leave out `own` above `rules`"),
    ],
)
def test_a_section_of_a_configuration_is_told_how_to_become_a_file_of_rules(
    run: Run, tmp_path: Path, text: str, place: str, fix: str
) -> None:
    """A copied section is refused with what to leave out, and with nothing else."""
    path = tmp_path / "section.yaml"
    path.write_text(text, encoding="utf-8")
    code, out, err = run("explain", "process.run", "ls", "--bundle", path)
    assert (code, err) == (3, "error: 1 problem in the file\n")
    assert out.startswith(f"{path}:{place}: ")
    assert fix in out
    assert "or name the whole configuration file" in out


def test_a_whole_configuration_is_judged_as_its_agent(run: Run, tmp_path: Path) -> None:
    """Rules of the deployment hold beside the agent's, on the profile's path, whatever this machine lacks."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "own").write_text("#!/bin/sh\n", encoding="utf-8")
    (programs / "own").chmod(0o755)
    text = MINIMAL.replace(
        "policy: default}", "policy: default, secrets: [KEY], profiles: {isolation: main}}"
    ).replace("default: {rules: []}", "")
    config = tmp_path / "config.yaml"
    config.write_text(
        text
        + "  default:\n    rules:\n      - {id: own, decision: allow, author: me, may_start_others: true, "
        + "match: "
        + f"{{tool: process.run, replaceable: true, program: {programs.resolve()}/own}}}}\n"
        + "  deployment:\n    rules: [{id: never-there, decision: deny, match: {cwd: there}}]\n"
        + "providers:\n  local: {kind: isolation, command: [no-such-provider-installed], "
        + "trust: operator_installed, deployment: local_process}\n"
        + f"profiles: {{isolation: {{main: {{provider: local, path: [{programs.resolve()}]}}}}}}\n"
        + "secrets: {KEY: '${env:NOT_SET_ANYWHERE}'}\n",
        encoding="utf-8",
    )
    path = cases(
        tmp_path,
        "{argv: [own], expect: allow, rule: own}",
        "{argv: [own], cwd: there, expect: deny, rule: never-there}",
        "{argv: [own], secrets: [OTHER], expect: invalid}",
        "{argv: [own], secrets: [KEY], expect: require_approval}",
        "{argv: [head], expect: invalid}",
    )
    assert run("test", path, "--bundle", config) == (0, f"{path}: 5 cases as expected\n", "")


def test_an_agent_that_the_configuration_lacks_is_refused(run: Run, tmp_path: Path) -> None:
    """Nothing is judged for an agent that there is not; the nearest is named, with the place in the cases."""
    config = tmp_path / "config.yaml"
    config.write_text(MINIMAL, encoding="utf-8")
    code, out, err = run("explain", "process.run", "ls", "--bundle", config, "--agent", "defualt")
    assert (code, out) == (2, "")
    assert err == "error: --agent: no agent of this name is declared; did you mean `default`?\n"
    path = cases(tmp_path, "{argv: [ls], expect: require_approval}", "{argv: [ls], agent: x, expect: allow}")
    assert run("test", path, "--bundle", config) == (
        3,
        f"{path}:3:5: cases[1].agent: no agent of this name is declared; `agents` declares `default`\n",
        "error: 1 problem in the file\n",
    )


def test_rules_that_seem_to_decide_nothing_are_warned_of(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same by `config validate` and `policy test`: with rule, place and fix, on stderr or in the JSON."""
    own = tmp_path.resolve() / "own"
    own.write_text("#!/bin/sh\n", encoding="utf-8")
    own.chmod(0o755)
    allow = "decision: allow, author: me, match: {tool: process.run, program:"
    lax = allow.replace("match", "may_start_others: true, match")
    rules = [
        f"{{id: twice, {allow} /usr/bin/wc, argv: [wc, -l]}}}}",
        "{id: bare, decision: deny, match: {argv: [rm], rest: true}}",
        "{id: gone, decision: deny, match: {program: /usr/local/bin/no-such}}",
        "{id: place, decision: deny, match: {program: /usr/bin}}",
        f"{{id: own, {lax} {own}}}}}",
        f"{{id: answered, {lax} {own}, replaceable: true, stdin: true}}}}",
        f"{{id: late, {allow} /usr/bin/head, argv: [-n]}}}}",
        "{id: all-heads, decision: require_approval, match: {program: /usr/bin/head}}",
        "{id: read, decision: allow, match: {effect: read_only}}",
        "{id: fine, decision: deny, match: {program: /usr/bin/rm}}",
    ]
    expected = (
        (
            "8:5: policy.deploymnt",
            "no agent has this bundle: its rules decide nothing; did you mean `deployment`?",
        ),
        (
            "11:105: policy.default.rules[0].match.argv",
            "rule `twice` matches `wc wc …` only: `argv` begins after",
        ),
        (
            "12:50: policy.default.rules[1].match.argv",
            "`bare` does not match `rm` itself: `argv` begins after",
        ),
        (
            "13:53: policy.default.rules[2].match.program",
            "rule `gone` matches nothing here: there is no such",
        ),
        ("14:54: policy.default.rules[3].match.program", "name the program itself"),
        (
            "15:108: policy.default.rules[4].match.program",
            "rule `own` allows nothing here: `own` can be replaced",
        ),
        (
            "17:9: policy.default.rules[6]",
            "rule `all-heads` (line 18) decides `require_approval` on every call",
        ),
        ("19:53: policy.default.rules[8].match.effect", "no tool of this version only reads"),
    )
    config = tmp_path / "config.yaml"
    listed = "".join(f"      - {rule}\n" for rule in rules)
    config.write_text(
        MINIMAL.replace(
            "  default: {rules: []}",
            f"  deploymnt:\n    rules: [{rules[-1].replace('fine', 'x')}]\n  default:\n    rules:\n{listed}",
        ),
        encoding="utf-8",
    )
    path = cases(tmp_path, "{argv: [rm], expect: deny}")
    code, out, err = run("test", path, "--bundle", config)
    assert (code, out) == (0, f"{path}: 1 case as expected\n")
    assert len(err.splitlines()) == len(expected)
    for line, (place, told) in zip(err.splitlines(), expected, strict=True):
        assert line.startswith(f"warning: {config}:{place}: ")
        assert told in line
    code, out, again = run("test", path, "--bundle", config, "--output", "json")
    assert (code, again, len(json.loads(out)["warnings"])) == (0, "", len(expected))
    assert run_command(["config", "validate", str(config)]) == 0
    assert capsys.readouterr() == (f"{config}: valid\n", err)
    alone = tmp_path / "rules.yaml"
    alone.write_text("rules:\n" + "".join(f"  - {rule}\n" for rule in rules), encoding="utf-8")
    err = run("test", path, "--bundle", alone)[2]
    assert [line.partition(": rule ")[0] for line in err.splitlines()] == [
        f"warning: {alone}:{int(line) - 9}:{int(column) - 4}: {key.removeprefix('policy.default.')}"
        for line, column, key in (place.replace(": ", ":").split(":") for place, _ in expected[1:])
    ]
    stop = "{id: stop, decision: deny, match: {}}"
    alone.write_text("rules:\n" + "".join(f"  - {rule}\n" for rule in (stop, *rules)))
    first, *others = run("test", path, "--bundle", alone)[2].splitlines()
    assert first.startswith(
        f"warning: {alone}:2:5: rules[0]: rule `stop` decides on every call that 10 other"
    )
    assert "decides nothing: rule" not in str(others)


def test_a_call_is_explained(run: Run, rules: Path) -> None:
    """Decision, rule, author and target are there, and for shell text its commands or why it is opaque."""
    told = explanation(run, rules, "head -5 a | wc -l")
    assert (told["decision"], told["rule"], told["runs"]) == ("allow", "read,count", "by bash")
    assert [command["argv"][0] for command in told["target"]["commands"]] == ["head", "wc"]
    told = explanation(run, rules, '{"argv": ["head", "a b"]}')
    assert (told["runs"], told["author"]) == ("without a shell", "ops")
    assert told == explanation(run, rules, "head 'a b'")
    told = explanation(run, rules, "head a > b")
    assert (told["decision"], told["rule"], told["opaque"]) == (
        "require_approval",
        "default.shell",
        "`>` (character 8)",
    )
    assert explanation(run, rules, "wc a", "--untrusted")["rule"] == "after-reading"
    told = explanation(run, rules, '{"argv": ["head"], "provider": "x"}')
    assert told["decision"] == "invalid"
    assert "`provider` is no field" in told["reason"]


def test_a_program_that_others_can_replace_is_explained(run: Run, tmp_path: Path) -> None:
    """The rule that its path satisfies is named, with the place where others write, unless it answers."""
    own = tmp_path.resolve() / "own"
    own.write_text("#!/bin/sh\n", encoding="utf-8")
    own.chmod(0o755)
    path = tmp_path / "rules.yaml"
    match = f"tool: process.run, program: {own}, stdin: true"
    for more, decision, rule in (
        ("", "require_approval", "default.replaceable"),
        (", replaceable: true", "allow", "own"),
    ):
        path.write_text(
            "rules: [{id: own, decision: allow, author: ops, may_start_others: true, "
            f"match: {{{match}{more}}}}}]\n",
            encoding="utf-8",
        )
        for call in (str(own), f"{own} | {own}"):
            told = explanation(run, path, call)
            assert (told["decision"], told["rule"]) == (decision, rule)
            assert ("rule `own` does not allow it, because `own` can be" in told["reason"]) is (not more)
    code, out, err = run("explain", "process.run", f"{own} | {own}", "--bundle", path)
    assert (code, err) == (0, "")
    assert out.count("`own` can be replaced: /") == 2


def test_the_rule_that_came_nearest_is_told(run: Run, tmp_path: Path) -> None:
    """Where no rule matched, the one that failed on a single condition is named with what it wants."""
    path = tmp_path / "rules.yaml"
    path.write_text(
        "rules:\n"
        "  - {id: few, decision: allow, author: ops,\n"
        "     match: {tool: process.run, program: /usr/bin/wc, argv: [-l]}}\n",
        encoding="utf-8",
    )
    (miss,) = explanation(run, path, "wc -c")["nearest"]
    assert miss == {
        "rule": "few",
        "decision": "allow",
        "condition": "argv",
        "why": "argument 1 is `-c`, the rule wants `-l`",
        "program": "/usr/bin/wc",
    }
    assert explanation(run, path, "wc -l")["nearest"] == []
    assert explanation(run, path, "head -l")["nearest"] == []
    _, out, _ = run("explain", "process.run", "wc -l | wc -l", "--bundle", path)
    (line,) = [line for line in out.splitlines() if line.startswith("nearest:")]
    assert line.endswith(
        "rule `few` (allow) but for stdin: the call has standard input, the rule no `stdin: true`"
    )


def test_an_explanation_reads_well(run: Run, rules: Path) -> None:
    """As text, one thing a line, with nothing hidden."""
    code, out, _ = run("explain", "process.run", "head 'a b' | wc; rm $x", "--bundle", rules)
    assert code == 0
    assert " ".join(line.partition(":")[0] for line in out.splitlines()) == (
        "decision rule reason runs opaque command command command cwd policy"
    )
    assert '/usr/bin/head ["head", "a b"]' in out
    assert '/usr/bin/rm ["rm"] (and more that is not known)' in out


def test_a_workspace_can_be_named(run: Run, rules: Path, tmp_path: Path) -> None:
    """Relative programs are looked for in the directory that is named, and nothing is made there."""
    own = tmp_path / "workspace/tool"
    own.parent.mkdir()
    own.write_text("#!/bin/sh\n", encoding="utf-8")
    own.chmod(0o755)
    workspace = ("--workspace", str(own.parent))
    assert explanation(run, rules, "./tool", *workspace)["target"]["program"] == str(own.resolve())
    assert explanation(run, rules, "./tool")["decision"] == "invalid"
    assert explanation(run, rules, '{"argv": ["head"], "cwd": "sub"}', *workspace)["decision"] == "invalid"
    assert [path.name for path in own.parent.iterdir()] == ["tool"]


def test_the_guides_rules_judge_the_guides_cases(run: Run, tmp_path: Path) -> None:
    """The rules that the guide shows say to its cases what the guide says."""
    page = Page(Path("docs/guides/policy.md"), (ROOT / "docs/guides/policy.md").read_text(encoding="utf-8"))
    rules, cases = (block.code for block in page.blocks if block.language == "yaml")
    root = read_document((QUICKSTART.partition("\npolicy:")[0] + "\n" + rules).encode(), "f").root
    assert root is not None
    config, file = tmp_path / "config.yaml", tmp_path / "cases.yaml"
    config.write_text(json.dumps(plain(root)), encoding="utf-8")
    file.write_text(cases, encoding="utf-8")
    assert run("test", file, "--bundle", config) == (0, f"{file}: 9 cases as expected\n", "")
