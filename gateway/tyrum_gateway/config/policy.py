"""Turns the rules of the file into the domain's rules."""

from tyrum_gateway.config import rule_model
from tyrum_gateway.domain import policy


def to_bundle(name: str, bundle: rule_model.Bundle) -> policy.Bundle:
    """Convert a bundle; the file's checks have already refused allow rules that are too wide."""
    return policy.Bundle(name=name, rules=tuple(_rule(rule) for rule in bundle.rules))


def _rule(rule: rule_model.Rule) -> policy.Rule:
    match = rule.match
    return policy.Rule(
        rule_id=rule.id,
        decision=policy.Decision(rule.decision),
        author=rule.author or "",
        reason=rule.reason,
        tool=match.tool,
        effect=None if match.effect is None else policy.Effect(match.effect),
        agent=match.agent,
        provenance=None if match.provenance is None else policy.Provenance(match.provenance),
        in_shell=match.shell is not None,
        program=match.program,
        argv=None if match.argv is None else tuple(_argument(item) for item in match.argv),
        rest=match.rest,
        cwd=match.cwd,
        env=frozenset(match.env),
        stdin=match.stdin,
        secrets=frozenset(match.secrets),
        replaceable=match.replaceable,
        may_start_others=rule.may_start_others,
    )


def _argument(item: rule_model.Argument) -> policy.ArgumentMatch:
    match item:
        case str():
            return policy.Literal(item)
        case rule_model.PrefixArgument(prefix=prefix):
            return policy.Prefix(prefix)
        case rule_model.AnyArgument():
            return policy.AnyArgument()
