"""A rule that is said to decide nothing is beaten wherever it matches."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from tyrum_gateway.domain.policy import (
    AnyArgument,
    Decision,
    Effect,
    Literal,
    Prefix,
    Provenance,
    Rule,
    Target,
    overshadowed,
)

LS, WC, BASH = "/usr/bin/ls", "/usr/bin/wc", "/usr/bin/bash"
LANG = frozenset({"LANG"})
ONE, REST = {"argv": (Literal("a"),)}, {"rest": True}
CHANGES: tuple[dict[str, Any], ...] = (
    *(
        {key: value}
        for key, value in (("tool", None), ("effect", Effect.STATE_CHANGING), ("agent", "default"))
    ),
    *({"provenance": value} for value in Provenance),
    *({"program": value} for value in (None, WC, BASH)),
    *({"argv": ()}, {"argv": (), **REST}, ONE, {**ONE, **REST}, {"argv": (Literal("ab"),)}),
    *(
        {"argv": (Prefix("a"),)},
        {"argv": (Prefix("a/"),)},
        {"argv": (Prefix("a/../"),)},
        {"argv": (Literal("a/../b"),)},
    ),
    *(
        {"argv": (AnyArgument(),)},
        {"argv": (Literal("a"), AnyArgument())},
        {"argv": (AnyArgument(),), **REST},
    ),
    *(
        {"in_shell": True},
        {"cwd": "."},
        {"env": LANG},
        {"stdin": True},
        {"replaceable": True},
        {"secrets": LANG},
    ),
)
RUN = Target("process.run", Effect.STATE_CHANGING, agent="default", program=LS, argv=("ls", "a"))


def _rules() -> Iterator[Rule]:
    """Make rules that differ from one another in a condition or two."""
    for decision in Decision:
        base = Rule("r", decision, "ops", tool="process.run", program=LS)
        yield base
        yield from (replace(base, **change) for change in CHANGES)


def _calls() -> Iterator[Target]:
    for arguments in (
        (),
        ("a",),
        ("ab",),
        ("a/../b",),
        ("a/b/../../../c",),
        ("b",),
        ("a", "b"),
        ("a", "b", "c"),
    ):
        yield replace(RUN, argv=("ls", *arguments))
        yield replace(RUN, argv=("ls", *arguments), complete=False)
    shell = replace(RUN, program=None, argv=(), shell="text", interpreter=BASH)  # noqa: S604
    for one in (RUN, replace(RUN, program=WC, argv=("wc", "a")), shell, replace(shell, agent="other")):
        yield from (one, replace(one, cwd="sub"), replace(one, env=LANG), replace(one, stdin=True))
        yield from (replace(one, secrets=LANG), replace(one, agent="other"), replace(one, tool="other"))
        yield from (replace(one, replaceable="it can be"), replace(one, provenance=Provenance.UNTRUSTED))


def test_an_overshadowed_rule_is_beaten_wherever_it_matches() -> None:
    """Whatever call it matches, the other rule matches too, and is as severe at least."""
    calls, severity = tuple(_calls()), tuple(Decision)
    rules = tuple(_rules())
    matched = {position: [rule.matches(call) for call in calls] for position, rule in enumerate(rules)}
    beaten = 0
    for (one, first), (two, second) in product(enumerate(rules), repeat=2):
        for position, other in overshadowed((first, second)):
            loser, winner = (one, two)[position], (one, two)[other]
            told = f"{rules[loser]} by {rules[winner]}"
            assert severity.index(rules[winner].decision) >= severity.index(rules[loser].decision), told
            pairs = zip(matched[loser], matched[winner], strict=True)
            assert all(beating or not matching for matching, beating in pairs), told
            beaten += any(matched[loser])
    assert beaten > 500


def test_what_overshadows_is_found() -> None:
    """The stricter rule counts before the earlier one, and a rule that says more of its own is left alone."""
    deny = Rule("d", Decision.DENY, "", program=LS)
    ask = Rule("q", Decision.REQUIRE_APPROVAL, "")
    allow = Rule("a", Decision.ALLOW, "ops", program=LS, argv=(Prefix("a"),))
    assert list(overshadowed((allow, ask, deny))) == [(0, 2)]
    assert list(overshadowed((allow, replace(allow, argv=(Literal("ab"),))))) == [(1, 0)]
    assert list(overshadowed((allow, replace(allow, argv=(Literal("a/../b"),))))) == []
    assert list(overshadowed((allow, replace(allow, stdin=True)))) == []
    assert list(overshadowed((ask, replace(ask, provenance=Provenance.UNTRUSTED)))) == []
    assert list(overshadowed((deny, replace(deny, cwd="sub"), replace(deny, in_shell=True)))) == [
        (1, 0),
        (2, 0),
    ]
