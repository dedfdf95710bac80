"""Bundles: the rules in force for an agent, the deployment's and its own together.

Invariant: the digest identifies the rules, whatever file or bundle they came from.
"""

from dataclasses import dataclass, field

from tyrum_gateway.domain.canonical import digest
from tyrum_gateway.domain.policy.rule import Decision, Rule
from tyrum_gateway.domain.policy.target import Effect

DEPLOYMENT = "deployment"
"""The bundle of this name holds for every agent."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The rules in force for an agent."""

    name: str
    rules: tuple[Rule, ...]
    digest: str = field(init=False)
    """Identifies the rules, whatever file they came from."""

    def __post_init__(self) -> None:
        value = digest("tyrum.policy.2", [rule.value() for rule in self.rules])
        object.__setattr__(self, "digest", value)


def together(deployment: Bundle | None, own: Bundle) -> Bundle:
    """Join what holds for every agent and what holds for one; severity decides, so neither can soften.

    The agent's own rules may allow what the deployment leaves open, never what it denies or asks about.
    """
    if deployment is None or deployment.name == own.name:
        return own
    return Bundle(f"{deployment.name}+{own.name}", deployment.rules + own.rules)


def bars(bundle: Bundle, tool: str, effect: Effect, agent: str = "") -> bool:
    """Tell whether a rule denies the tool whatever its arguments: then no model is shown it."""
    return any(
        rule.decision is Decision.DENY
        and rule.tool in {None, tool}
        and rule.effect in {None, effect}
        and rule.agent in {None, agent}
        and rule.provenance is None
        and not rule.in_shell
        and rule.program is None
        and rule.argv is None
        and rule.cwd is None
        for rule in bundle.rules
    )
