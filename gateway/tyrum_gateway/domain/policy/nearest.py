"""The rule that nearly applied: what somebody who writes rules wants to know when none did.

Invariant: a miss is a rule that applies once exactly one of its conditions is taken away, as `Rule.matches`
itself says; nothing here decides on a call.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from tyrum_gateway.domain.policy.bundle import Bundle
from tyrum_gateway.domain.policy.names import injects
from tyrum_gateway.domain.policy.rule import AnyArgument, ArgumentMatch, Decision, Literal, Prefix, Rule
from tyrum_gateway.domain.policy.target import Target
from tyrum_gateway.domain.policy.url import looks_like_url


@dataclass(frozen=True, slots=True)
class Miss:
    """A rule that failed on exactly one condition."""

    rule_id: str
    decision: Decision
    condition: str
    """The key of the rule's match that failed."""
    why: str
    """What the call has and what the rule asks for."""
    program: str
    """Which command of the call it is about; empty when it runs no program."""


def near_misses(bundle: Bundle, target: Target) -> tuple[Miss, ...]:
    """Find for a call, or for each command of shell text, the rule that came nearest.

    A part that a rule matches has none, nor has one for which every rule fails on more than one condition. A
    rule for another tool or another program is not near, unless the program only lies elsewhere.
    """
    parts = (target,) if target.shell is None else tuple(target.parts())
    found = (_nearest(bundle, part) for part in parts if not _matched(bundle, part))
    return tuple(dict.fromkeys(miss for miss in found if miss is not None))


def _matched(bundle: Bundle, target: Target) -> bool:
    return any(rule.matches(target) for rule in bundle.rules)


def _nearest(bundle: Bundle, target: Target) -> Miss | None:
    misses = [
        (order, -_leading(rule, target), position, condition, rule)
        for position, rule in enumerate(bundle.rules)
        for order, (condition, (applies, _)) in enumerate(_CONDITIONS.items())
        if applies(rule, target)
    ]
    if not misses:
        return None
    *_, condition, rule = min(misses, key=lambda miss: miss[:3])
    why = _CONDITIONS[condition][1](rule, target)
    return Miss(rule.rule_id, rule.decision, condition, why, target.program or "")


def _without_input(rule: Rule, target: Target) -> bool:
    return target.stdin and rule.matches(replace(target, stdin=False))


def _without_variables(rule: Rule, target: Target) -> bool:
    return bool(target.env) and rule.matches(replace(target, env=frozenset()))


def _without_secrets(rule: Rule, target: Target) -> bool:
    return bool(target.secrets) and rule.matches(replace(target, secrets=frozenset()))


def _anywhere(rule: Rule, target: Target) -> bool:
    return rule.cwd is not None and replace(rule, cwd=None).matches(target)


def _with_any_arguments(rule: Rule, target: Target) -> bool:
    return rule.argv is not None and replace(rule, argv=None).matches(target)


def _called_plainly(rule: Rule, target: Target) -> bool:
    name = PurePosixPath(rule.program or "").name
    return bool(rule.program and target.argv) and rule.matches(replace(target, argv=(name, *target.argv[1:])))


def _whatever_was_read(rule: Rule, target: Target) -> bool:
    return rule.provenance is not None and replace(rule, provenance=None).matches(target)


def _for_any_agent(rule: Rule, target: Target) -> bool:
    return rule.agent is not None and replace(rule, agent=None).matches(target)


def _of_that_name(rule: Rule, target: Target) -> bool:
    if rule.program is None or target.program is None:
        return False
    same = PurePosixPath(rule.program).name == PurePosixPath(target.program).name
    return same and rule.matches(replace(target, program=rule.program))


def _variables(rule: Rule, target: Target) -> str:
    injecting = sorted(name for name in target.env if injects(name))
    if injecting:
        return f"the call sets `{injecting[0]}`, which programs obey as code: no rule can allow that"
    return f"the call sets `{sorted(target.env - rule.env)[0]}`, which the rule's `env` does not list"


def _secrets(rule: Rule, target: Target) -> str:
    missing = sorted(target.secrets - rule.secrets) or sorted(target.secrets)
    return f"the call asks for the secret `{missing[0]}`, which the rule does not admit"


def _arguments(rule: Rule, target: Target) -> str:
    patterns, arguments = rule.argv or (), target.argv[1:]
    at = _leading(rule, target)
    if at < min(len(patterns), len(arguments)):
        return f"argument {at + 1} is `{arguments[at]}`, the rule wants {_wanted(patterns[at])}"
    if len(arguments) < len(patterns):
        return f"the call has only the first {len(arguments)} of the {len(patterns)} arguments of the rule"
    return f"arguments follow the {len(patterns)} that the rule lists: `rest: true` would admit them"


def _leading(rule: Rule, target: Target) -> int:
    """Count the arguments that fit, from the first on."""
    patterns = rule.argv or ()
    for count in range(min(len(patterns), len(target.argv) - 1)):
        begun = replace(rule, argv=patterns[: count + 1], rest=True)
        if not begun.matches(replace(target, argv=target.argv[: count + 2])):
            return count
    return max(0, min(len(patterns), len(target.argv) - 1))


def _wanted(pattern: ArgumentMatch) -> str:
    match pattern:
        case Literal(text):
            return f"`{text}`"
        case Prefix(text) if looks_like_url(text):
            return f"a URL beginning `{text}`, without user info, braces or escaped slashes and dots"
        case Prefix(text):
            return f"a path beginning `{text}` that does not climb"
        case AnyArgument():
            return "any"


_CONDITIONS: dict[str, tuple[Callable[[Rule, Target], bool], Callable[[Rule, Target], str]]] = {
    "stdin": (_without_input, lambda _, __: "the call has standard input, the rule no `stdin: true`"),
    "env": (_without_variables, _variables),
    "secrets": (_without_secrets, _secrets),
    "cwd": (_anywhere, lambda rule, target: f"the call runs in `{target.cwd}`, the rule wants `{rule.cwd}`"),
    "argv": (_with_any_arguments, _arguments),
    "provenance": (
        _whatever_was_read,
        lambda rule, target: f"the call is {target.provenance}, the rule wants {rule.provenance}",
    ),
    "agent": (
        _for_any_agent,
        lambda rule, target: f"the agent is `{target.agent}`, the rule wants `{rule.agent}`",
    ),
    "program": (
        lambda rule, target: _called_plainly(rule, target) or _of_that_name(rule, target),
        lambda rule, target: (
            f"it is called as `{target.argv[0]}`, an allow wants its plain name or real path"
            if rule.program == target.program
            else f"the program is `{target.program}`, the rule wants `{rule.program}`"
        ),
    ),
}
"""By the key of a match, nearest first: whether a rule applies without that condition, and why it fails."""
