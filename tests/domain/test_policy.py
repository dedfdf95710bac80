"""Policy decides from the target alone: severity before order, and nothing rides along."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.domain.samples import SLOW
from tyrum_gateway.domain.policy import (
    AnyArgument,
    Bundle,
    Decision,
    Effect,
    Literal,
    Prefix,
    Rule,
    Target,
    bars,
    evaluate,
)

RUN = Target("process.run", Effect.STATE_CHANGING, program="/usr/bin/printf", argv=("printf", "a", "b"))
ALLOW = Rule("allow", Decision.ALLOW, "ops", program="/usr/bin/printf")
SEVERITY = [Decision.ALLOW, Decision.REQUIRE_APPROVAL, Decision.DENY]

names = st.sampled_from(["A", "B", "LD_PRELOAD"])
rules = st.builds(
    Rule,
    rule_id=st.uuids().map(str),
    decision=st.sampled_from(Decision),
    author=st.just("ops"),
    tool=st.sampled_from([None, "process.run", "memory.search"]),
    effect=st.sampled_from([None, *Effect]),
    program=st.sampled_from([None, "/usr/bin/printf", "/usr/bin/rm"]),
    argv=st.none()
    | st.lists(st.sampled_from([Literal("a"), Prefix("a"), AnyArgument()]), max_size=3).map(tuple),
    rest=st.booleans(),
    cwd=st.sampled_from([None, ".", "sub"]),
    env=st.frozensets(names),
    stdin=st.booleans(),
    secrets=st.frozensets(names),
)
targets = st.builds(
    Target,
    tool=st.sampled_from(["process.run", "memory.search"]),
    effect=st.sampled_from(Effect),
    program=st.sampled_from([None, "/usr/bin/printf", "/usr/bin/rm"]),
    argv=st.lists(st.sampled_from(["printf", "a", "ab", "b"]), max_size=4).map(tuple),
    shell=st.sampled_from([None, "a"]),
    cwd=st.sampled_from([".", "sub"]),
    env=st.frozensets(names),
    stdin=st.booleans(),
    secrets=st.frozensets(names),
)


def bundle(*of: Rule) -> Bundle:
    """Make a bundle."""
    return Bundle("test", of)


def decide(target: Target, *of: Rule) -> Decision:
    """Evaluate a target against rules."""
    return evaluate(bundle(*of), target).decision


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(st.lists(rules, max_size=6), targets, st.randoms(use_true_random=False))
def test_order_of_rules_never_matters(given_rules: list[Rule], target: Target, random: object) -> None:
    """Shuffled rules give the same decision, and it is the most severe of those that match."""
    shuffled = list(given_rules)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    decision = decide(target, *given_rules)
    assert decide(target, *shuffled) is decision
    matching = [rule.decision for rule in given_rules if rule.matches(target)]
    reads = target.effect is Effect.READ_ONLY and target.shell is None
    default = Decision.ALLOW if reads else Decision.REQUIRE_APPROVAL
    assert decision is max(matching, key=SEVERITY.index, default=default)


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(rules, targets)
def test_an_allow_admits_only_what_it_lists(rule: Rule, target: Target) -> None:
    """An allow never matches shell text, nor a variable, secret or input that it does not name."""
    if rule.decision is Decision.ALLOW and rule.matches(target):
        assert target.shell is None
        assert target.env <= rule.env
        assert target.secrets <= rule.secrets
        assert rule.stdin or not target.stdin


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(st.lists(rules, max_size=4), rules, targets)
def test_another_rule_cannot_soften_a_decision(given_rules: list[Rule], more: Rule, target: Target) -> None:
    """Adding a deny or a require_approval never makes the outcome milder."""
    if more.decision is Decision.ALLOW or not any(rule.matches(target) for rule in given_rules):
        return
    before, after = decide(target, *given_rules), decide(target, *given_rules, more)
    assert SEVERITY.index(after) >= SEVERITY.index(before)


@pytest.mark.parametrize("order", list(itertools.permutations(Decision)))
def test_of_all_rules_that_match_the_strictest_decides(order: tuple[Decision, ...]) -> None:
    """Deny beats require_approval beats allow, in whatever order the rules stand."""
    matching = [Rule(decision.value, decision, "a", program=RUN.program) for decision in order]
    assert decide(RUN, *matching) is Decision.DENY
    milder = [rule for rule in matching if rule.decision is not Decision.DENY]
    assert decide(RUN, *milder) is Decision.REQUIRE_APPROVAL


@pytest.mark.parametrize(
    "extra",
    [
        {"env": frozenset({"LD_PRELOAD"})},
        {"env": frozenset({"BASH_FUNC_x"})},
        {"stdin": True},
        {"secrets": frozenset({"TOKEN"})},
        {"shell": "printf a"},
    ],
)
def test_extras_never_ride_along(extra: dict[str, object]) -> None:
    """What an allow does not list turns the call into a question; a deny applies all the same."""
    laden = replace(RUN, **extra)  # type: ignore[arg-type]
    assert decide(RUN, ALLOW) is Decision.ALLOW
    assert decide(laden, ALLOW) is Decision.REQUIRE_APPROVAL
    assert decide(laden, replace(ALLOW, decision=Decision.DENY)) is Decision.DENY


@pytest.mark.parametrize(
    ("argv", "rest", "arguments", "matches"),
    [
        ((), False, (), True),
        ((), False, ("a",), False),
        ((), True, ("a", "b"), True),
        ((Literal("a"),), False, ("a",), True),
        ((Literal("a*"),), False, ("ab",), False),
        ((Literal("a"),), False, ("a", "b"), False),
        ((Literal("a"),), True, ("a", "b"), True),
        ((Literal("a"),), True, (), False),
        ((Prefix("--x="),), False, ("--x=1",), True),
        ((Prefix("--x="),), False, ("x--x=1",), False),
        ((AnyArgument(),), False, ("",), True),
        ((AnyArgument(),), False, (), False),
    ],
)
def test_arguments_match_one_by_one(
    argv: tuple[Literal | Prefix | AnyArgument, ...], rest: bool, arguments: tuple[str, ...], matches: bool
) -> None:
    """Patterns stand for the arguments after argv[0], each for one, and are never globs."""
    rule = replace(ALLOW, argv=argv, rest=rest)
    assert rule.matches(replace(RUN, argv=("printf", *arguments))) is matches


def test_nothing_matched_asks_unless_it_only_reads() -> None:
    """Without a rule a state-changing call asks, and a read-only one is allowed; both name their default."""
    asked = evaluate(bundle(), RUN)
    read = evaluate(bundle(), Target("memory.search", Effect.READ_ONLY))
    assert (asked.decision, asked.rule_id) == (Decision.REQUIRE_APPROVAL, "default.state_changing")
    assert (read.decision, read.rule_id) == (Decision.ALLOW, "default.read_only")


def test_verdict_says_what_it_rests_on() -> None:
    """A verdict names the first deciding rule, its reason and author, the bundle's digest and the target."""
    deny = Rule("no", Decision.DENY, "ops", reason="never here")
    verdict = evaluate(bundle(ALLOW, deny, replace(deny, rule_id="no-2")), RUN)
    assert (verdict.rule_id, verdict.reason, verdict.author) == ("no", "never here", "ops")
    assert verdict.policy_digest == bundle(ALLOW, deny, replace(deny, rule_id="no-2")).digest
    assert '"program":"/usr/bin/printf"' in verdict.target


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(st.lists(rules, max_size=3), st.lists(rules, max_size=3))
def test_bundles_are_identified_by_their_rules(first: list[Rule], second: list[Rule]) -> None:
    """Equal rules give equal digests, different rules different ones, whatever the bundle is called."""
    assert (Bundle("a", tuple(first)).digest == Bundle("b", tuple(second)).digest) == (first == second)


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(targets, targets)
def test_targets_are_described_in_full(first: Target, second: Target) -> None:
    """Targets that a rule could tell apart are recorded differently."""
    probes = [
        Rule("r", Decision.ALLOW, "", tool=first.tool, effect=first.effect, program=first.program),
        Rule("r", Decision.ALLOW, "", env=first.env, secrets=first.secrets, stdin=first.stdin),
    ]
    told_apart = any(probe.matches(first) != probe.matches(second) for probe in probes)
    if told_apart:
        assert first.describe() != second.describe()


@pytest.mark.parametrize(
    ("rule", "barred"),
    [
        (Rule("all", Decision.DENY, "a", tool="process.run"), True),
        (Rule("every-tool", Decision.DENY, "a"), True),
        (Rule("some", Decision.DENY, "a", tool="process.run", program="/bin/rm"), False),
        (Rule("elsewhere", Decision.DENY, "a", tool="memory.write"), False),
        (Rule("reads", Decision.DENY, "a", effect=Effect.READ_ONLY), False),
        (Rule("asks", Decision.REQUIRE_APPROVAL, "a", tool="process.run"), False),
    ],
)
def test_only_a_tool_denied_whatever_its_arguments_is_hidden(rule: Rule, barred: bool) -> None:
    """A model is not shown a tool that could never run, and is shown every other."""
    assert bars(Bundle("b", (rule,)), "process.run", Effect.STATE_CHANGING) is barred


def test_a_program_under_another_name_is_not_what_a_rule_permits() -> None:
    """A multi-call binary reached through a link of another name asks, and is still denied by its path."""
    busybox = Target("process.run", Effect.STATE_CHANGING, program="/bin/busybox", argv=("./rm", "-r", "a"))
    allow = Rule("allow", Decision.ALLOW, "ops", program="/bin/busybox")
    assert decide(busybox, allow) is Decision.REQUIRE_APPROVAL
    assert decide(replace(busybox, argv=("busybox", "true")), allow) is Decision.ALLOW
    assert decide(busybox, allow, Rule("deny", Decision.DENY, "ops", program="/bin/busybox")) is Decision.DENY
