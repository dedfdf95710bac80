"""Rules that never decide, because others decide all that they match.

Invariant: a rule counts as overshadowed only when, whatever the call, another one matches it too and wins; of
two rules that cannot be compared for certain, neither does.
"""

from collections.abc import Iterator, Sequence

from tyrum_gateway.domain.policy.rule import (
    AnyArgument,
    ArgumentMatch,
    Decision,
    Literal,
    Prefix,
    Rule,
    argument_matches,
    climbs,
)
from tyrum_gateway.domain.policy.target import Effect
from tyrum_gateway.domain.policy.url import looks_like_url

_SEVERITY = {Decision.DENY: 0, Decision.REQUIRE_APPROVAL: 1, Decision.ALLOW: 2}


def overshadowed(rules: Sequence[Rule]) -> Iterator[tuple[int, int]]:
    """Give the position of each rule that never decides, and that of one which always decides instead.

    Args:
        rules: All that hold together, in their order.
    """
    by_program: dict[str | None, list[int]] = {}
    for position, rule in enumerate(rules):
        by_program.setdefault(rule.program, []).append(position)
    for position, rule in enumerate(rules):
        near = by_program.get(rule.program, []) if rule.program is not None else []
        candidates = sorted(
            {*near, *by_program.get(None, [])} - {position},
            key=lambda other: (_SEVERITY[rules[other].decision], other),
        )
        for other in candidates:
            if _wins(rules[other], rule, earlier=other < position) and _covers(rules[other], rule):
                yield position, other
                break


def _wins(other: Rule, rule: Rule, *, earlier: bool) -> bool:
    if other.decision is not rule.decision:
        return _SEVERITY[other.decision] < _SEVERITY[rule.decision]
    # A question because of what was read is one that no standing permission answers.
    stronger = rule.decision is Decision.REQUIRE_APPROVAL and rule.provenance is not None
    return earlier and not (stronger and other.provenance is None)


def _covers(other: Rule, rule: Rule) -> bool:
    """Tell whether a rule, which is at least as severe, matches whatever another one does."""
    return (
        other.tool in {None, rule.tool}
        # There is no tool of another effect that runs programs.
        and (other.effect in {None, rule.effect} or _changes_state(other, rule))
        and other.agent in {None, rule.agent}
        and other.provenance in {None, rule.provenance}
        and (rule.in_shell or not other.in_shell)
        and other.program in {None, rule.program}
        and _arguments_covered(other, rule)
        and other.cwd in {None, rule.cwd}
        and (other.decision is not Decision.ALLOW or _admits_as_much(other, rule))
    )


def _changes_state(other: Rule, rule: Rule) -> bool:
    return other.effect is Effect.STATE_CHANGING and rule.tool == "process.run"


def _arguments_covered(other: Rule, rule: Rule) -> bool:
    if other.argv is None:
        return True
    if rule.argv is None or len(other.argv) > len(rule.argv):
        return False
    if not other.rest and (rule.rest or len(other.argv) < len(rule.argv)):
        return False
    return all(
        _argument_covered(*pair, climbing=other.decision is not Decision.ALLOW)
        for pair in zip(other.argv, rule.argv, strict=False)
    )


def _argument_covered(other: ArgumentMatch, argument: ArgumentMatch, *, climbing: bool) -> bool:
    match other, argument:
        case AnyArgument(), _:
            return True
        case _, Literal(text):
            return argument_matches(other, text) and (climbing or not climbs(other, text))
        case Prefix(text), Prefix(longer):
            # Which URLs begin with both is more than their text says.
            return text == longer or (climbing and longer.startswith(text) and not looks_like_url(longer))
        case _:
            return False


def _admits_as_much(other: Rule, rule: Rule) -> bool:
    return (
        other.env >= rule.env
        and other.secrets >= rule.secrets
        and (other.stdin or not rule.stdin)
        and (other.replaceable or not rule.replaceable)
        # An allow wants the program that it names called by its name.
        and other.program == rule.program
    )
