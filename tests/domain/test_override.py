"""What is permitted for good is what was approved or what the operator wrote, never what runs others."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.domain.samples import ALICE, NOW, SLOW, approval, fresh
from tyrum_gateway.domain.approval import Approval, Subject, answer
from tyrum_gateway.domain.errors import InvalidRequest, OverrideNotDerivable
from tyrum_gateway.domain.ids import CallId, OverrideId
from tyrum_gateway.domain.override import (
    DEFAULT_LIFE,
    LONGEST_LIFE,
    Override,
    Pattern,
    Wish,
    derive,
    outdated,
    permit,
    read_target,
    revoke,
)
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
    evaluate,
)
from tyrum_gateway.domain.policy import Override as InForce

PATIENT = settings(suppress_health_check=SLOW, deadline=None, derandomize=True, database=None)
OVERRIDE = fresh(OverrideId)
SUBJECT = Subject('{"workspace":{"path":"/work"}}', "touch")
TEXT = "touch a"
TOUCH = Target(
    tool="process.run",
    effect=Effect.STATE_CHANGING,
    program="/usr/bin/touch",
    argv=("touch", "a", "b"),
    cwd="docs",
    agent="default",
)


HEAD = replace(TOUCH, program="/usr/bin/head", argv=("head", "a", "b"))
"""Of a program that is known to start nothing."""


def rule(target: Target, pattern: Pattern | None = None) -> Rule:
    """Derive from a target."""
    return derive(target, pattern, override_id=OVERRIDE, author="Alice")


def asked(target: Target = TOUCH, subject: Subject = SUBJECT) -> Approval:
    """A question about a target."""
    return replace(approval(fresh(CallId)), subject=subject, target=target.describe())


def permitted(target: Target = TOUCH, wish: Wish | None = None, subject: Subject = SUBJECT) -> Override:
    """Approve a target for good."""
    question = asked(target, subject)
    answered = answer(
        question,
        approve=True,
        digest=question.subject.digest,
        reason="fine",
        principal=replace(ALICE, origin="unix uid 7"),
        now=NOW,
        override_id=OVERRIDE,
    )
    return permit(answered, wish or Wish())


def test_it_permits_the_approved_call_and_says_who_answers_for_it() -> None:
    """The same call is permitted; the record names human, method, origin, reason, approval and both ends."""
    override = permitted()
    assert override.rule.matches(TOUCH)
    assert override.rule.rule_id == override.override_id == OVERRIDE
    assert (override.created_by, override.created_name) == (ALICE.principal_id, "Alice")
    assert (override.created_method, override.created_from) == ("token", "unix uid 7")
    assert (override.created_reason, override.created_at) == ("fine", NOW)
    assert override.expires_at == NOW + DEFAULT_LIFE
    assert override.summary == "/usr/bin/touch a b (in docs)"


@pytest.mark.parametrize(
    "other",
    [
        replace(TOUCH, argv=("touch", "a")),
        replace(TOUCH, argv=("touch", "a", "c")),
        replace(TOUCH, argv=("touch", "a", "b", "c")),
        replace(TOUCH, argv=("touch", "b", "a")),
        replace(
            TOUCH,
            argv=("touch", "a", "b "),
        ),
        replace(TOUCH, argv=("chmod", "a", "b")),
        replace(TOUCH, complete=False),
        replace(TOUCH, program="/usr/local/bin/touch"),
        replace(TOUCH, cwd="."),
        replace(TOUCH, tool="process.start"),
        replace(TOUCH, env=frozenset({"LANG"})),
        replace(TOUCH, secrets=frozenset({"KEY"})),
        replace(TOUCH, stdin=True),
        replace(TOUCH, replaceable="it can be replaced"),
        replace(TOUCH, shell=TEXT, interpreter="/usr/bin/bash"),
    ],
)
def test_nothing_but_the_approved_call_is_permitted(other: Target) -> None:
    """Another argument, program, directory, tool, variable, secret, input or a shell is asked about."""
    assert not rule(TOUCH).matches(other)


@PATIENT
@given(st.lists(st.text(max_size=8), max_size=4), st.lists(st.text(max_size=8), max_size=4))
def test_only_equal_arguments_are_equal(approved: list[str], other: list[str]) -> None:
    """Whatever characters the arguments hold, a permission without a pattern fits exactly its own."""
    target = replace(TOUCH, argv=("touch", *approved))
    assert rule(target).matches(replace(TOUCH, argv=("touch", *other))) == (approved == other)


INTERPRETERS = (
    *("/bin/sh", "/usr/bin/bash", "/usr/bin/dash", "/usr/bin/zsh", "/bin/busybox", "/usr/bin/python3.11"),
    *("/usr/bin/perl", "/usr/bin/node", "/usr/bin/ruby", "/usr/bin/awk", "/usr/bin/sed", "/usr/bin/make"),
)
WRAPPERS = (
    *("/usr/bin/env", "/usr/bin/sudo", "/usr/bin/xargs", "/usr/bin/find", "/usr/bin/timeout"),
    *("/usr/bin/nice", "/usr/bin/nohup", "/usr/bin/git", "/usr/bin/ssh", "/usr/bin/docker", "/usr/bin/tar"),
)


@pytest.mark.parametrize("program", INTERPRETERS + WRAPPERS)
@pytest.mark.parametrize("pattern", [None, Pattern((AnyArgument(),), rest=True)])
def test_never_derived_from_what_runs_others(program: str, pattern: Pattern | None) -> None:
    """An interpreter or wrapper is never permitted for good, not even as the operator's own pattern."""
    target = replace(TOUCH, program=program, argv=(program.rpartition("/")[2], "a"))
    with pytest.raises(OverrideNotDerivable, match="approving it once works"):
        rule(target, pattern)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (replace(TOUCH, program=None, argv=(), shell=TEXT), "shell text"),
        (replace(TOUCH, program=None, argv=()), "no single program"),
        (replace(TOUCH, argv=("chmod", "a")), "another name"),
        (replace(TOUCH, argv=("bash", "a")), "runs what its arguments"),
        (replace(TOUCH, stdin=True), "standard input"),
        (replace(TOUCH, env=frozenset({"LANG"})), "environment"),
        (replace(TOUCH, env=frozenset({"LD_PRELOAD"})), "LD_PRELOAD"),
        (replace(TOUCH, secrets=frozenset({"PYTHONPATH"})), "PYTHONPATH"),
    ],
)
def test_what_cannot_be_fixed_is_not_permitted_for_good(target: Target, why: str) -> None:
    """Shell text, another name, input and variables are refused with the reason, and approving once works."""
    with pytest.raises(OverrideNotDerivable, match=why):
        rule(target)


@pytest.mark.parametrize(
    "subject", ["{}", "[]", "", '{"workspace":{"path":"/usr/bin"}}', '{"workspace":"/"}']
)
def test_a_program_that_the_agent_can_rewrite_is_not_permitted_for_good(subject: str) -> None:
    """A program in the workspace, or one of which nobody knows where the workspace is, is refused."""
    with pytest.raises(OverrideNotDerivable, match="workspace"):
        permitted(subject=Subject(subject, ""))


@pytest.mark.parametrize("pattern", [None, Pattern((AnyArgument(),), rest=True)])
def test_a_program_that_others_can_replace_is_not_permitted_for_good(pattern: Pattern | None) -> None:
    """What others than root can replace is approved once, never for good; the text says why and a way."""
    target = replace(TOUCH, replaceable="`touch` can be replaced: /opt/own belongs to uid 7")
    with pytest.raises(OverrideNotDerivable) as caught:
        permitted(target, Wish(pattern=pattern))
    assert "/opt/own belongs to uid 7 (install it where root alone may write)" in caught.value.public
    assert "approving it once works" in caught.value.public


def test_a_permission_does_not_hold_for_a_program_that_others_can_replace_by_now() -> None:
    """When others can write where the program lies, the permission does not answer, and says why."""
    held = [InForce(OVERRIDE, rule(TOUCH))]
    verdict = evaluate(Bundle("b", ()), replace(TOUCH, replaceable="everybody may write"), held)
    assert (verdict.decision, verdict.rule_id) == (Decision.REQUIRE_APPROVAL, "default.replaceable")
    assert f"permission `{OVERRIDE}` does not hold: everybody may write" in verdict.reason


def test_a_pattern_widens_what_the_operator_wrote_and_nothing_else() -> None:
    """Prefixes, any arguments and variables are admitted as they were written; program and place stay."""
    pattern = Pattern((Prefix("a"), AnyArgument()), rest=True, env=frozenset({"LANG"}))
    wide = permitted(HEAD, Wish(pattern=pattern))
    assert wide.rule.matches(HEAD)
    assert wide.rule.matches(replace(HEAD, argv=("head", "abc", "z", "more")))
    assert wide.rule.matches(replace(HEAD, env=frozenset({"LANG"})))
    for other in (
        replace(HEAD, argv=("head", "b", "z")),
        replace(HEAD, argv=("head", "a")),
        replace(HEAD, cwd="."),
        replace(HEAD, program="/usr/bin/rm", argv=("rm", "a", "b")),
        replace(HEAD, env=frozenset({"LANG", "TZ"})),
        replace(HEAD, env=frozenset({"LD_PRELOAD"})),
        replace(HEAD, stdin=True),
    ):
        assert not wide.rule.matches(other)
    assert "<begins with a> <any> <any more>" in wide.summary
    variable = replace(TOUCH, env=frozenset({"LANG"}))
    assert rule(variable, Pattern((Literal("a"), Literal("b")), env=frozenset({"LANG"}))).matches(variable)


@pytest.mark.parametrize("name", ["touch", "json_pp", "xdg-user-dir", "debugfs"])
@pytest.mark.parametrize(
    "pattern",
    [Pattern((Literal("a"), AnyArgument())), Pattern((Literal("a"), Prefix("b"))), Pattern((), rest=True)],
)
def test_nothing_is_left_open_to_a_program_that_may_start_others(name: str, pattern: Pattern) -> None:
    """What is not known to start nothing is permitted with the arguments of the call, never a pattern's."""
    target = replace(TOUCH, program=f"/usr/bin/{name}", argv=(name, "a", "b"))
    with pytest.raises(InvalidRequest, match=f"`{name}` may start what they name.*may_start_others"):
        rule(target, pattern)
    literal = rule(target, Pattern((Literal("a"), Literal("b"))))
    assert (outdated(literal), outdated(rule(HEAD, pattern))) == ("", "")
    assert "leaves arguments open" in outdated(replace(literal, argv=pattern.argv, rest=pattern.rest))


@pytest.mark.parametrize(
    "pattern",
    [
        Pattern(()),
        Pattern((Literal("a"),)),
        Pattern((Literal("b"), AnyArgument())),
        Pattern((Prefix("b"),), rest=True),
        Pattern((AnyArgument(),) * 3),
        Pattern((AnyArgument(),) * 2, env=frozenset({"BASH_ENV"})),
    ],
)
def test_a_pattern_fits_the_approved_call_and_injects_nothing(pattern: Pattern) -> None:
    """A pattern that does not even permit what was approved, or lists what injects, is a mistake."""
    with pytest.raises(InvalidRequest, match="override_pattern"):
        rule(TOUCH, pattern)


@pytest.mark.parametrize("decision", [Decision.DENY, Decision.REQUIRE_APPROVAL])
def test_an_override_never_beats_a_deny(decision: Decision) -> None:
    """What a rule denies stays denied; what a rule or the default asks is answered by the override."""
    held = [InForce(OVERRIDE, rule(TOUCH))]
    bundle = Bundle("b", (Rule("r", decision, "ops", program="/usr/bin/touch"),))
    verdict = evaluate(bundle, TOUCH, held)
    if decision is Decision.DENY:
        assert (verdict.decision, verdict.rule_id) == (Decision.DENY, "r")
    else:
        assert (verdict.decision, verdict.rule_id, verdict.author) == (Decision.ALLOW, OVERRIDE, "Alice")
    assert evaluate(Bundle("b", ()), TOUCH, held).decision is Decision.ALLOW
    assert evaluate(Bundle("b", ()), replace(TOUCH, cwd="."), held).decision is Decision.REQUIRE_APPROVAL


def test_a_question_about_untrusted_content_is_not_answered_by_an_override() -> None:
    """Where a rule asks because of what the model had read, a permission given before does not count."""
    bundle = Bundle("b", (Rule("r", Decision.REQUIRE_APPROVAL, "ops", provenance=Provenance.UNTRUSTED),))
    untrusted = replace(TOUCH, provenance=Provenance.UNTRUSTED)
    held = [InForce(OVERRIDE, rule(untrusted))]
    assert evaluate(bundle, untrusted, held).decision is Decision.REQUIRE_APPROVAL
    assert evaluate(bundle, TOUCH, held).decision is Decision.ALLOW


@pytest.mark.parametrize(
    "target",
    [
        TOUCH,
        replace(TOUCH, env=frozenset({"A", "B"}), stdin=True, secrets=frozenset({"KEY"})),
        replace(TOUCH, argv=("touch", "", "\n", "ü", '"')),
        replace(TOUCH, provenance=Provenance.UNTRUSTED, agent="", cwd="."),
        replace(TOUCH, replaceable="it can be replaced"),
        Target("memory.write", Effect.STATE_CHANGING),
    ],
)
def test_a_target_is_read_back_as_it_was_described(target: Target) -> None:
    """What an approval holds of its target is the target that policy saw."""
    assert read_target(target.describe()) == target


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "1", "{}", '{"tool":"t","effect":"odd"}', '{"tool":"t","effect":"read_only","new":1}'),
        replace(TOUCH, complete=False).describe(),
        replace(TOUCH, program=None, argv=(), interpreter="/usr/bin/bash").describe(),
    ],
)
def test_a_target_that_says_more_is_not_permitted_for_good(text: str) -> None:
    """A description with anything this gateway does not know, or without what it needs, permits nothing."""
    with pytest.raises(OverrideNotDerivable):
        read_target(text)
    question = replace(asked(), target=text)
    answered = answer(
        question,
        approve=True,
        digest=question.subject.digest,
        reason="",
        principal=ALICE,
        now=NOW,
        override_id=OVERRIDE,
    )
    with pytest.raises(OverrideNotDerivable):
        permit(answered, Wish())


def test_shell_text_of_one_command_is_still_shell_text() -> None:
    """What a shell would run is refused, however plain its only command is."""
    target = replace(
        TOUCH,
        program=None,
        argv=(),
        shell=TEXT,
        interpreter="/usr/bin/bash",
        commands=(StartedCommand("/usr/bin/touch", ("touch", "a")),),
    )
    with pytest.raises(OverrideNotDerivable, match="shell text"):
        permitted(target)


def test_it_ends_by_itself_and_by_revocation() -> None:
    """An override holds until the moment it expires or is revoked; the first revocation stays."""
    override = permitted(wish=Wish(life=timedelta(seconds=10)))
    assert override.in_force(NOW + timedelta(seconds=9))
    assert not override.in_force(NOW + timedelta(seconds=10))
    ended = revoke(override, by="Bob", reason="no more", now=NOW)
    assert not ended.in_force(NOW)
    assert revoke(ended, by="Alice", reason="again", now=NOW) is ended


@pytest.mark.parametrize("life", [timedelta(0), -timedelta(days=1), LONGEST_LIFE + timedelta(seconds=1)])
def test_its_life_is_bounded(life: timedelta) -> None:
    """Nothing is permitted for no time, for ever, or for more than a year."""
    with pytest.raises(InvalidRequest, match="override_expires_in"):
        permitted(wish=Wish(life=life))


def test_what_nobody_can_read_is_not_permitted_for_good() -> None:
    """Arguments of more than a few kilobytes make no permission."""
    with pytest.raises(OverrideNotDerivable, match="too long"):
        permitted(replace(TOUCH, argv=("touch", "x" * 5000)))
