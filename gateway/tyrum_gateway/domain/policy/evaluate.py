"""The decision on a target: by rules, by what humans permitted for good, and by defaults.

Invariants: deny beats everything; shell text is as severe as its most severe part and is allowed only when
all its commands are known and each is allowed; a default never allows what changes state.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tyrum_gateway.domain.policy.bundle import Bundle
from tyrum_gateway.domain.policy.rule import Decision, Rule
from tyrum_gateway.domain.policy.target import Effect, Target


@dataclass(frozen=True, slots=True)
class Override:
    """What a human permitted for good when answering a question: a narrow allow rule of its own."""

    override_id: str
    rule: Rule
    """With decision ALLOW."""

    def __post_init__(self) -> None:
        if self.rule.decision is not Decision.ALLOW:
            raise ValueError("an override permits")

    def permits(self, target: Target) -> bool:
        """Tell whether it answers the question about this target."""
        return self.rule.matches(target)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision and what it rests on."""

    decision: Decision
    rule_id: str
    """Rule, override or `default.…`; of shell text that is allowed, those of its commands, with commas."""
    reason: str
    policy_digest: str
    target: str
    author: str = ""
    """Who answers for the rule; empty for the defaults."""


@dataclass(frozen=True, slots=True)
class _Finding:
    """A decision on a target or on a part of it."""

    decision: Decision
    rule_id: str
    reason: str
    author: str = ""


_SEVERITY = (Decision.DENY, Decision.REQUIRE_APPROVAL, Decision.ALLOW)


def evaluate(bundle: Bundle, target: Target, overrides: Sequence[Override] = ()) -> Verdict:
    """Decide on a target.

    Among the rules that match, the most severe decision wins, and among those the first rule. Without a
    match a read-only target is allowed and everything else asks. An override answers a question that a
    default or a rule asks; it never beats a deny, nor a rule that asks because of the provenance.
    """
    findings = list(_findings(bundle, target, overrides))
    decision = next(item for item in _SEVERITY if any(found.decision is item for found in findings))
    deciding = [found for found in findings if found.decision is decision]
    # What is allowed rests on the permission of every part; a deny or a question on the first that says so.
    first = deciding[0]
    if decision is Decision.ALLOW and len(deciding) > 1:
        first = _Finding(
            decision,
            ",".join(dict.fromkeys(found.rule_id for found in deciding)),
            "; ".join(dict.fromkeys(found.reason for found in deciding)),
            ", ".join(dict.fromkeys(found.author for found in deciding if found.author)),
        )
    return Verdict(decision, first.rule_id, first.reason, bundle.digest, target.describe(), first.author)


def _findings(bundle: Bundle, target: Target, overrides: Sequence[Override]) -> Iterator[_Finding]:
    if target.shell is None:
        yield _decide(bundle, target, overrides)
        return
    # No allow matches shell text itself: only a deny or a question can be found here.
    whole = _strictest(bundle, target)
    if whole is not None:
        yield whole
    for part in target.parts():
        yield _decide(bundle, part, overrides)
    why = _never_allowed(target)
    if why:
        yield _Finding(Decision.REQUIRE_APPROVAL, "default.shell", why)


def _never_allowed(target: Target) -> str:
    """Say why shell text cannot be allowed whatever its commands are; empty when it can."""
    if target.opaque or not target.commands:
        return f"shell text that rules cannot judge: {target.opaque or 'no command was found'}"
    if target.env or target.secrets:
        return "shell text with variables of its own, which bash itself would read"
    return ""


def _decide(bundle: Bundle, target: Target, overrides: Sequence[Override]) -> _Finding:
    found = _strictest(bundle, target)
    if found is None:
        found = _default(target)
        if found.decision is Decision.REQUIRE_APPROVAL:
            found = _unfounded(bundle, target, overrides) or found
    if found.decision is not Decision.REQUIRE_APPROVAL or _escalated(bundle, target):
        return found
    for override in overrides:
        if override.permits(target):
            reason = override.rule.reason or f"permission `{override.override_id}`"
            return _Finding(Decision.ALLOW, override.override_id, reason, override.rule.author)
    return found


def _strictest(bundle: Bundle, target: Target) -> _Finding | None:
    matching = [rule for rule in bundle.rules if rule.matches(target)]
    for decision in _SEVERITY:
        for rule in matching:
            if rule.decision is decision:
                reason = rule.reason or f"rule `{rule.rule_id}`"
                return _Finding(decision, rule.rule_id, reason, rule.author)
    return None


def _escalated(bundle: Bundle, target: Target) -> bool:
    """Tell whether a rule asks because of what the model had read: no permission was given for that."""
    return any(
        rule.decision is Decision.REQUIRE_APPROVAL and rule.provenance is not None and rule.matches(target)
        for rule in bundle.rules
    )


def _unfounded(bundle: Bundle, target: Target, overrides: Sequence[Override]) -> _Finding | None:
    """Find what would permit the target if nobody could put another program in the place of its own."""
    if not target.replaceable:
        return None
    firm = replace(target, replaceable="")
    remedy = "install it where root alone may write"
    found = _strictest(bundle, firm)
    if found is not None:
        remedy = f"{remedy}, or answer for it with `replaceable: true` in the rule"
        reason = f"rule `{found.rule_id}` does not allow it, because {target.replaceable}; {remedy}"
        return _Finding(Decision.REQUIRE_APPROVAL, "default.replaceable", reason)
    for override in overrides:
        if override.permits(firm):
            reason = f"permission `{override.override_id}` does not hold: {target.replaceable}; {remedy}"
            return _Finding(Decision.REQUIRE_APPROVAL, "default.replaceable", reason)
    return None


def _default(target: Target) -> _Finding:
    if target.effect is Effect.READ_ONLY:
        return _Finding(Decision.ALLOW, "default.read_only", "reads only")
    return _Finding(Decision.REQUIRE_APPROVAL, "default.state_changing", "no rule permits it")
