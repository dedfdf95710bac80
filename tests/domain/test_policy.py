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
    Override,
    Prefix,
    Provenance,
    Rule,
    StartedCommand,
    Target,
    bars,
    evaluate,
    together,
)

RUN = Target("process.run", Effect.STATE_CHANGING, program="/usr/bin/printf", argv=("printf", "a", "b"))
TEXT = "printf a | wc"
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
    agent=st.sampled_from([None, "default", "other"]),
    provenance=st.sampled_from([None, *Provenance]),
    in_shell=st.booleans(),
    replaceable=st.booleans(),
)
commands = st.builds(
    StartedCommand,
    program=st.sampled_from(["/usr/bin/printf", "/usr/bin/rm"]),
    argv=st.lists(st.sampled_from(["printf", "a", "ab"]), min_size=1, max_size=3).map(tuple),
    complete=st.booleans(),
    piped=st.booleans(),
    replaceable=st.sampled_from(["", "it can be replaced"]),
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
    agent=st.sampled_from(["default", "other"]),
    provenance=st.sampled_from(Provenance),
    replaceable=st.sampled_from(["", "it can be replaced"]),
)
texts = st.builds(
    Target,
    tool=st.just("process.run"),
    effect=st.sampled_from(Effect),
    shell=st.just("text"),
    interpreter=st.sampled_from(["/usr/bin/bash", "/usr/bin/rm"]),
    commands=st.lists(commands, max_size=3).map(tuple),
    opaque=st.sampled_from(["", "", "`$`"]),
    env=st.frozensets(names, max_size=1),
    stdin=st.booleans(),
    agent=st.sampled_from(["default", "other"]),
    provenance=st.sampled_from(Provenance),
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
    """An allow never matches shell text, nor a variable, secret or anything else that it does not list."""
    if rule.decision is Decision.ALLOW and rule.matches(target):
        assert target.shell is None
        assert target.env <= rule.env
        assert target.secrets <= rule.secrets
        assert rule.stdin or not target.stdin
        assert rule.replaceable or not target.replaceable


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
        (Rule("later", Decision.DENY, "a", provenance=Provenance.UNTRUSTED), False),
        (Rule("shells", Decision.DENY, "a", in_shell=True), False),
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


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(st.lists(rules, max_size=6), texts)
def test_shell_text_is_as_severe_as_its_most_severe_part(given_rules: list[Rule], text: Target) -> None:
    """Text is allowed only when all commands are known, each is allowed by itself, and it carries nothing."""
    decision = decide(text, *given_rules)
    parts = [decide(part, *given_rules) for part in text.parts()]
    whole = [rule.decision for rule in given_rules if rule.matches(text)]
    assert Decision.ALLOW not in whole
    if decision is Decision.ALLOW:
        assert parts
        assert set(parts) == {Decision.ALLOW}
        assert not text.opaque
        assert not text.env
        assert not whole
    assert (decision is Decision.DENY) == (Decision.DENY in {*parts, *whole})


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(st.lists(rules, max_size=6), st.lists(rules, max_size=3), st.one_of(targets, texts))
def test_a_permission_only_ever_answers_a_question(
    given_rules: list[Rule], granted: list[Rule], target: Target
) -> None:
    """An override never changes a deny, an allow, or what is asked because of the provenance."""
    overrides = [
        Override(f"over-{index}", replace(rule, decision=Decision.ALLOW))
        for index, rule in enumerate(granted)
    ]
    before = evaluate(bundle(*given_rules), target)
    after = evaluate(bundle(*given_rules), target, overrides)
    if before.decision is not Decision.REQUIRE_APPROVAL:
        assert after == before
    elif after != before and target.shell is None:
        assert after.decision is Decision.ALLOW
        assert after.rule_id.startswith("over-")
        assert not any(
            rule.matches(target) and rule.provenance and rule.decision is Decision.REQUIRE_APPROVAL
            for rule in given_rules
        )


def test_a_permission_beats_defaults_and_questions_but_no_deny() -> None:
    """What a human permitted runs unasked, also where a rule asks, unless it is denied or escalated."""
    permission = Override("over_1", replace(ALLOW, rule_id="over_1", author="ann"))
    asks = Rule("ask", Decision.REQUIRE_APPROVAL, "", program=RUN.program)
    for given_rules in ((), (asks,)):
        verdict = evaluate(bundle(*given_rules), RUN, [permission])
        assert (verdict.decision, verdict.rule_id, verdict.author) == (Decision.ALLOW, "over_1", "ann")
    untrusted = replace(RUN, provenance=Provenance.UNTRUSTED)
    assert evaluate(bundle(asks), untrusted, [permission]).decision is Decision.ALLOW
    escalation = replace(asks, rule_id="escalate", provenance=Provenance.UNTRUSTED)
    assert evaluate(bundle(escalation), untrusted, [permission]).rule_id == "escalate"
    denies = Rule("no", Decision.DENY, "", program=RUN.program)
    assert evaluate(bundle(denies), RUN, [permission]).rule_id == "no"
    with pytest.raises(ValueError, match="permits"):
        Override("over_2", denies)


def test_a_permission_reaches_into_a_list() -> None:
    """Each command of a list may rest on a rule or on a permission, and the verdict names both."""
    permission = Override("over_1", replace(ALLOW, rule_id="over_1", author="ann"))
    rule = Rule("wc", Decision.ALLOW, "ops", program="/usr/bin/wc", stdin=True)
    text = Target(
        "process.run",
        Effect.STATE_CHANGING,
        shell=TEXT,
        commands=(
            StartedCommand("/usr/bin/printf", ("printf", "a")),
            StartedCommand("/usr/bin/wc", ("wc",), piped=True),
        ),
    )
    assert evaluate(bundle(rule), text).decision is Decision.REQUIRE_APPROVAL
    verdict = evaluate(bundle(rule), text, [permission])
    assert (verdict.decision, verdict.rule_id, verdict.author) == (Decision.ALLOW, "over_1,wc", "ann, ops")


def test_the_deployments_rules_hold_beside_the_agents() -> None:
    """Neither bundle can soften the other, and the digest is over both."""
    deployment = Bundle("deployment", (Rule("no-rm", Decision.DENY, "", program="/usr/bin/rm"),))
    own = Bundle("default", (ALLOW, replace(ALLOW, rule_id="rm", program="/usr/bin/rm")))
    both = together(deployment, own)
    assert evaluate(both, RUN).rule_id == "allow"
    assert evaluate(both, replace(RUN, program="/usr/bin/rm", argv=("rm",))).rule_id == "no-rm"
    assert evaluate(both, RUN).policy_digest not in {deployment.digest, own.digest}
    assert together(None, own) is own
    assert together(deployment, deployment) is deployment


@pytest.mark.parametrize(
    ("argv", "rest", "matches"),
    [((), True, True), ((Literal("-r"),), True, True), ((Literal("-r"),), False, False), ((), False, False)],
)
def test_arguments_that_are_not_all_known(argv: tuple[Literal, ...], rest: bool, matches: bool) -> None:
    """A deny on arguments applies where what is known already satisfies it, and never an allow."""
    target = replace(RUN, argv=("printf", "-r"), complete=False)
    assert replace(ALLOW, decision=Decision.DENY, argv=argv, rest=rest).matches(target) is matches
    assert not replace(ALLOW, argv=argv, rest=rest).matches(target)


def test_a_rule_for_an_agent_is_for_no_other() -> None:
    """Rules that name an agent decide on its calls alone."""
    ours = replace(RUN, agent="default")
    rule = replace(ALLOW, agent="default")
    assert decide(ours, rule) is Decision.ALLOW
    assert decide(replace(RUN, agent="other"), rule) is Decision.REQUIRE_APPROVAL
    barred = Bundle("b", (Rule("all", Decision.DENY, "", agent="default"),))
    assert bars(barred, "process.run", Effect.STATE_CHANGING, "default")
    assert not bars(barred, "process.run", Effect.STATE_CHANGING, "other")


def test_a_prefix_that_allows_a_directory_is_not_left_by_dots() -> None:
    """An allow of `src/…` does not permit `src/../…`; a deny by prefix holds for both."""
    allow = Rule("src", Decision.ALLOW, "ops", program="/usr/bin/printf", argv=(Prefix("src/"),))
    for argument in ("src/../a", "src/a/../../b", "src/.."):
        assert decide(replace(RUN, argv=("printf", argument)), allow) is Decision.REQUIRE_APPROVAL
    for argument in ("src/a", "src/", "src/a..b", "src/..."):
        assert decide(replace(RUN, argv=("printf", argument)), allow) is Decision.ALLOW
    above = replace(allow, argv=(Prefix("../shared/"),))
    assert decide(replace(RUN, argv=("printf", "../shared/a")), above) is Decision.ALLOW
    assert decide(replace(RUN, argv=("printf", "../shared/../a")), above) is Decision.REQUIRE_APPROVAL
    # The first `..` may begin in the prefix, or directly behind an option or a sign.
    for prefix, argument in (("--to=", "--to=../a"), ("-C", "-C../a"), ("-o.", "-o../a"), (".", "../a")):
        begun = replace(allow, argv=(Prefix(prefix),))
        assert decide(replace(RUN, argv=("printf", argument)), begun) is Decision.REQUIRE_APPROVAL, argument
        assert decide(replace(RUN, argv=("printf", f"{prefix}/a..b")), begun) is Decision.ALLOW
    deny = replace(allow, decision=Decision.DENY)
    assert decide(replace(RUN, argv=("printf", "src/../a")), deny) is Decision.DENY
