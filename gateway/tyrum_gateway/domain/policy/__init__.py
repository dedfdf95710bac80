"""Policy: what a tool call may do, decided from its target alone.

Invariants: deny beats require_approval beats allow, whatever the order of rules; what no rule matches and is
not read-only asks; a rule admits only what it lists, so that an environment variable, standard input or a
secret never rides along. Literals and patterns are different types.
"""

from tyrum_gateway.domain.policy.bundle import DEPLOYMENT, Bundle, bars, together
from tyrum_gateway.domain.policy.evaluate import Override, Verdict, evaluate
from tyrum_gateway.domain.policy.harmless import HARMLESS, reads_data, starts_nothing
from tyrum_gateway.domain.policy.names import called_by_its_name, injects, starts_others
from tyrum_gateway.domain.policy.nearest import Miss, near_misses
from tyrum_gateway.domain.policy.rule import AnyArgument, ArgumentMatch, Decision, Literal, Prefix, Rule
from tyrum_gateway.domain.policy.shadow import overshadowed
from tyrum_gateway.domain.policy.target import Effect, Provenance, StartedCommand, Target
from tyrum_gateway.domain.policy.url import flaw, looks_like_url

__all__ = [
    "DEPLOYMENT",
    "HARMLESS",
    "AnyArgument",
    "ArgumentMatch",
    "Bundle",
    "Decision",
    "Effect",
    "Literal",
    "Miss",
    "Override",
    "Prefix",
    "Provenance",
    "Rule",
    "StartedCommand",
    "Target",
    "Verdict",
    "bars",
    "called_by_its_name",
    "evaluate",
    "flaw",
    "injects",
    "looks_like_url",
    "near_misses",
    "overshadowed",
    "reads_data",
    "starts_nothing",
    "starts_others",
    "together",
]
