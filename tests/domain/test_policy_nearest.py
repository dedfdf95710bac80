"""The rule that nearly applied is one that applies without the one condition that is named."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tyrum_gateway.domain.policy import (
    AnyArgument,
    Bundle,
    Decision,
    Effect,
    Literal,
    Prefix,
    Provenance,
    Rule,
    StartedCommand,
    Target,
    near_misses,
)

LIST = Rule(
    "list",
    Decision.ALLOW,
    "ops",
    tool="process.run",
    program="/usr/bin/ls",
    argv=(Literal("-l"), Prefix("src/")),
    cwd="project",
    env=frozenset({"LANG"}),
    secrets=frozenset({"TOKEN"}),
)
CALL = Target(
    "process.run",
    Effect.STATE_CHANGING,
    program="/usr/bin/ls",
    argv=("ls", "-l", "src/a"),
    cwd="project",
    env=frozenset({"LANG"}),
)


def told(target: Target, *rules: Rule) -> list[tuple[str, str, str]]:
    """Rule, condition and reason of each miss."""
    return [(miss.rule_id, miss.condition, miss.why) for miss in near_misses(Bundle("b", rules), target)]


def test_a_call_that_a_rule_matches_misses_none() -> None:
    """What some rule matches has no nearest one, whatever other rules say."""
    assert told(CALL, LIST) == []
    assert told(CALL, replace(LIST, rule_id="other", cwd="."), LIST) == []


@pytest.mark.parametrize(
    ("change", "condition", "why"),
    [
        ({"stdin": True}, "stdin", "the call has standard input, the rule no `stdin: true`"),
        ({"env": frozenset({"A", "LANG"})}, "env", "the call sets `A`, which the rule's `env` does not list"),
        (
            {"env": frozenset({"LD_PRELOAD"})},
            "env",
            "the call sets `LD_PRELOAD`, which programs obey as code: no rule can allow that",
        ),
        (
            {"secrets": frozenset({"KEY"})},
            "secrets",
            "the call asks for the secret `KEY`, which the rule does not admit",
        ),
        ({"cwd": "."}, "cwd", "the call runs in `.`, the rule wants `project`"),
        ({"argv": ("ls", "-a", "src/a")}, "argv", "argument 1 is `-a`, the rule wants `-l`"),
        (
            {"argv": ("ls", "-l", "src/../a")},
            "argv",
            "argument 2 is `src/../a`, the rule wants a path beginning `src/` that does not climb",
        ),
        ({"argv": ("ls", "-l")}, "argv", "the call has only the first 1 of the 2 arguments of the rule"),
        (
            {"argv": ("ls", "-l", "src/a", "b")},
            "argv",
            "arguments follow the 2 that the rule lists: `rest: true` would admit them",
        ),
        (
            {"argv": ("./ls", "-l", "src/a")},
            "program",
            "it is called as `./ls`, an allow wants its plain name or real path",
        ),
        ({"program": "/opt/ls"}, "program", "the program is `/opt/ls`, the rule wants `/usr/bin/ls`"),
    ],
)
def test_the_one_condition_that_failed_is_named(change: dict[str, Any], condition: str, why: str) -> None:
    """Each condition of a match is named by its key, with what the call has and what the rule wants."""
    assert told(replace(CALL, **change), LIST) == [("list", condition, why)]


def test_conditions_of_a_deny_and_of_provenance_and_agent_are_named() -> None:
    """Rules that ask or deny are near as well."""
    rule = replace(LIST, decision=Decision.DENY, provenance=Provenance.UNTRUSTED)
    assert told(CALL, rule) == [("list", "provenance", "the call is trusted, the rule wants untrusted")]
    rule = replace(LIST, agent="other")
    assert told(CALL, rule) == [("list", "agent", "the agent is ``, the rule wants `other`")]


def test_what_fails_twice_or_is_about_something_else_is_not_near() -> None:
    """Two conditions, another tool and another program are no near miss."""
    assert told(replace(CALL, stdin=True, cwd="."), LIST) == []
    assert told(replace(CALL, program="/usr/bin/cat", argv=("cat", "-l", "src/a")), LIST) == []
    assert told(replace(CALL, tool="other"), LIST) == []


def test_the_nearest_of_several_is_told() -> None:
    """Standard input is nearer than an argument, and of arguments the one that fits longer is."""
    first = replace(LIST, rule_id="first", argv=(Literal("-a"), AnyArgument()))
    second = replace(LIST, rule_id="second", argv=(Literal("-l"), Literal("src/b")))
    assert [miss[0] for miss in told(CALL, first, second)] == ["second"]
    call = replace(CALL, stdin=True)
    assert [miss[:2] for miss in told(call, replace(first, stdin=True), LIST)] == [("list", "stdin")]


def test_each_command_of_shell_text_has_its_own() -> None:
    """Of shell text the commands that no rule matches are told, each once."""
    commands = (
        StartedCommand("/usr/bin/ls", ("ls", "-l", "src/a")),
        StartedCommand("/usr/bin/ls", ("ls", "-l", "src/a"), piped=True),
        StartedCommand("/usr/bin/ls", ("ls", "-l", "src/b"), piped=True),
        StartedCommand("/usr/bin/cat", ("cat",)),
    )
    text = replace(CALL, program=None, argv=(), shell="…", commands=commands)  # noqa: S604 - nothing runs
    assert [miss[:2] for miss in told(text, LIST)] == [("list", "stdin")]


WORDS = st.sampled_from(["-l", "-a", "src/a", "src/../a", "b"])
RULES = st.builds(
    Rule,
    st.sampled_from(["one", "two"]),
    st.sampled_from(Decision),
    st.just("ops"),
    program=st.sampled_from([None, "/usr/bin/ls", "/opt/ls"]),
    argv=st.none() | st.lists(WORDS.map(Literal) | WORDS.map(Prefix), max_size=2).map(tuple),
    rest=st.booleans(),
    cwd=st.sampled_from([None, ".", "project"]),
    env=st.frozensets(st.sampled_from(["LANG", "A"])),
    stdin=st.booleans(),
)
CALLS = st.builds(
    Target,
    st.just("process.run"),
    st.just(Effect.STATE_CHANGING),
    program=st.sampled_from(["/usr/bin/ls", "/opt/ls"]),
    argv=st.lists(WORDS, max_size=3).map(lambda words: ("ls", *words)),
    complete=st.booleans(),
    cwd=st.sampled_from([".", "project"]),
    env=st.frozensets(st.sampled_from(["LANG", "A", "LD_PRELOAD"])),
    stdin=st.booleans(),
)


@settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(CALLS, st.lists(RULES, max_size=3))
def test_a_miss_never_names_a_rule_that_matches(target: Target, rules: list[Rule]) -> None:
    """Whatever the rules: a miss is found only where none matches, and always says something."""
    misses = near_misses(Bundle("b", tuple(rules)), target)
    if any(rule.matches(target) for rule in rules):
        assert misses == ()
    assert all(miss.why and miss.rule_id in {rule.rule_id for rule in rules} for miss in misses)
