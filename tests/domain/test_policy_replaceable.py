"""Programs that others than root can replace: their path alone is not trusted."""

from dataclasses import replace

import pytest

from tyrum_gateway.domain.policy import Bundle, Decision, Effect, Rule, StartedCommand, Target, evaluate

RUN = Target("process.run", Effect.STATE_CHANGING, program="/usr/bin/printf", argv=("printf", "a", "b"))
ALLOW = Rule("allow", Decision.ALLOW, "ops", program="/usr/bin/printf")
WHY = "/opt is writable for everybody"


def bundle(*of: Rule) -> Bundle:
    """Make a bundle."""
    return Bundle("test", of)


def test_an_allow_by_path_does_not_hold_unless_it_says_so() -> None:
    """The call asks, and the reason names rule, place and ways out; a rule may answer for it by a word."""
    target = replace(RUN, replaceable=WHY)
    verdict = evaluate(bundle(ALLOW), target)
    assert (verdict.decision, verdict.rule_id) == (Decision.REQUIRE_APPROVAL, "default.replaceable")
    assert f"rule `allow` does not allow it, because {WHY}; install it where root alone" in verdict.reason
    assert "`replaceable: true`" in verdict.reason
    assert f'"replaceable":"{WHY}"' in verdict.target
    answered = replace(ALLOW, replaceable=True)
    assert evaluate(bundle(answered), target).decision is Decision.ALLOW
    assert evaluate(bundle(answered), RUN).decision is Decision.ALLOW
    assert bundle(answered).digest != bundle(ALLOW).digest
    assert evaluate(bundle(), target).rule_id == "default.state_changing", "no rule is about it"


@pytest.mark.parametrize("decision", [Decision.DENY, Decision.REQUIRE_APPROVAL])
def test_what_denies_or_asks_holds_for_every_program(decision: Decision) -> None:
    """A deny and a question do not depend on who can replace the program."""
    verdict = evaluate(bundle(replace(ALLOW, decision=decision)), replace(RUN, replaceable=WHY))
    assert (verdict.decision, verdict.rule_id) == (decision, "allow")


def test_a_list_asks_for_one_command_that_others_can_replace() -> None:
    """One such command is enough, and the verdict rests on it; its rule may answer for it."""
    commands = (
        StartedCommand("/usr/bin/printf", ("printf",)),
        StartedCommand("/opt/own", ("own",), replaceable=WHY),
    )
    target = replace(RUN, program=None, argv=(), shell="printf; own", commands=commands)  # noqa: S604
    own = replace(ALLOW, rule_id="own", program="/opt/own")
    verdict = evaluate(bundle(ALLOW, own), target)
    assert (verdict.decision, verdict.rule_id) == (Decision.REQUIRE_APPROVAL, "default.replaceable")
    assert f'"replaceable":"{WHY}"' in verdict.target
    assert evaluate(bundle(ALLOW, replace(own, replaceable=True)), target).decision is Decision.ALLOW
