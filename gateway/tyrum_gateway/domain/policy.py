"""Policy: what a tool call may do, decided from its target alone.

Invariants: deny beats require_approval beats allow, whatever the order of rules; what no rule matches and
is not read-only asks; a rule admits only what it lists, so that an environment variable, standard input
or a secret never rides along. Literals and patterns are different types.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath

from tyrum_gateway.domain.canonical import Value, canonical_json, digest


class Decision(StrEnum):
    """Outcome of a policy evaluation."""

    ALLOW = "allow"
    REQUIRE_APPROVAL = "require_approval"
    DENY = "deny"


class Effect(StrEnum):
    """What a tool can do to the world; unknown tools count as state-changing."""

    READ_ONLY = "read_only"
    STATE_CHANGING = "state_changing"


@dataclass(frozen=True, slots=True)
class Literal:
    """Exactly this argument."""

    text: str


@dataclass(frozen=True, slots=True)
class Prefix:
    """An argument that begins so."""

    text: str


@dataclass(frozen=True, slots=True)
class AnyArgument:
    """One argument, whatever it is."""


ArgumentMatch = Literal | Prefix | AnyArgument


@dataclass(frozen=True, slots=True)
class Target:
    """What a call would do, as far as policy may look. Provider and profile are not part of it."""

    tool: str
    effect: Effect
    program: str | None = None
    """Resolved absolute path, None for tools that run no program and for shell text."""
    argv: tuple[str, ...] = ()
    shell: str | None = None
    """Text for a shell; such a call is never matched by its text."""
    cwd: str = "."
    """Relative to the workspace."""
    env: frozenset[str] = frozenset()
    """Names only."""
    stdin: bool = False
    secrets: frozenset[str] = frozenset()

    def describe(self) -> str:
        """Write the target as canonical JSON, for transcript and audit."""
        value: dict[str, Value] = {"tool": self.tool, "effect": self.effect.value}
        if self.program is not None:
            value |= {"program": self.program, "argv": list(self.argv), "cwd": self.cwd}
        if self.shell is not None:
            value |= {"shell": self.shell, "cwd": self.cwd}
        if self.env:
            value["env"] = sorted(self.env)
        if self.stdin:
            value["stdin"] = True
        if self.secrets:
            value["secrets"] = sorted(self.secrets)
        return canonical_json(value)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a bundle; every condition that is set must hold."""

    rule_id: str
    decision: Decision
    author: str
    """Who stands for the rule: an allow on a state-changing target is a standing approval."""
    reason: str = ""
    """Shown to the model when the rule denies."""
    tool: str | None = None
    effect: Effect | None = None
    program: str | None = None
    """Resolved absolute path."""
    argv: tuple[ArgumentMatch, ...] | None = None
    """Arguments after argv[0]; None admits any."""
    rest: bool = False
    """Whether further arguments may follow `argv`."""
    cwd: str | None = None
    """Relative to the workspace; None admits any directory in it."""
    env: frozenset[str] = frozenset()
    """Environment names that may be set."""
    stdin: bool = False
    """Whether standard input may be given."""
    secrets: frozenset[str] = frozenset()
    """Secrets that may be projected."""

    def matches(self, target: Target) -> bool:
        """Tell whether the rule applies.

        A deny or require_approval rule applies whatever rides along; an allow rule applies only when the
        target carries nothing that the rule does not list, and its program is called by its own name.
        """
        named = (
            (self.tool is None or self.tool == target.tool)
            and (self.effect is None or self.effect == target.effect)
            and (self.program is None or self.program == target.program)
            and (self.argv is None or _argv_matches(self.argv, target.argv[1:], rest=self.rest))
            and (self.cwd is None or self.cwd == target.cwd)
        )
        if not named:
            return False
        return self.decision is not Decision.ALLOW or self._admits_extras(target)

    def _admits_extras(self, target: Target) -> bool:
        return (
            target.shell is None
            and self._called_by_its_name(target)
            and target.env <= self.env
            and target.secrets <= self.secrets
            and (self.stdin or not target.stdin)
        )

    def _called_by_its_name(self, target: Target) -> bool:
        """Tell whether argv[0] is the program's own name, by which some programs choose what they do."""
        if self.program is None:
            return True
        called = PurePosixPath(target.argv[0]).name if target.argv else ""
        return called == PurePosixPath(self.program).name


@dataclass(frozen=True, slots=True)
class Bundle:
    """The rules in force for an agent."""

    name: str
    rules: tuple[Rule, ...]
    digest: str = field(init=False)
    """Identifies the rules, whatever file they came from."""

    def __post_init__(self) -> None:
        value = digest("tyrum.policy.1", [_rule_value(rule) for rule in self.rules])
        object.__setattr__(self, "digest", value)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision and what it rests on."""

    decision: Decision
    rule_id: str
    reason: str
    policy_digest: str
    target: str
    author: str = ""
    """Who answers for the rule; empty for the defaults."""


_SEVERITY = (Decision.DENY, Decision.REQUIRE_APPROVAL, Decision.ALLOW)


def evaluate(bundle: Bundle, target: Target) -> Verdict:
    """Decide on a target.

    Among the rules that match, the most severe decision wins, and among those the first rule. Without a
    match a read-only target is allowed and everything else asks.
    """
    matching = [rule for rule in bundle.rules if rule.matches(target)]
    described = target.describe()
    for decision in _SEVERITY:
        for rule in matching:
            if rule.decision is decision:
                reason = rule.reason or f"rule `{rule.rule_id}`"
                return Verdict(decision, rule.rule_id, reason, bundle.digest, described, rule.author)
    if target.effect is Effect.READ_ONLY:
        return Verdict(Decision.ALLOW, "default.read_only", "reads only", bundle.digest, described)
    return Verdict(
        Decision.REQUIRE_APPROVAL, "default.state_changing", "no rule permits it", bundle.digest, described
    )


def bars(bundle: Bundle, tool: str, effect: Effect) -> bool:
    """Tell whether a rule denies the tool whatever its arguments: then no model is shown it."""
    return any(
        rule.decision is Decision.DENY
        and rule.tool in {None, tool}
        and rule.effect in {None, effect}
        and rule.program is None
        and rule.argv is None
        and rule.cwd is None
        for rule in bundle.rules
    )


def _argv_matches(patterns: Sequence[ArgumentMatch], arguments: Sequence[str], *, rest: bool) -> bool:
    if len(arguments) < len(patterns) or (len(arguments) > len(patterns) and not rest):
        return False
    return all(_argument_matches(*pair) for pair in zip(patterns, arguments, strict=False))


def _argument_matches(pattern: ArgumentMatch, argument: str) -> bool:
    match pattern:
        case Literal(text):
            return argument == text
        case Prefix(text):
            return argument.startswith(text)
        case AnyArgument():
            return True


def _argument_value(pattern: ArgumentMatch) -> Value:
    match pattern:
        case Literal(text):
            return {"literal": text}
        case Prefix(text):
            return {"prefix": text}
        case AnyArgument():
            return {"any": True}


def _rule_value(rule: Rule) -> Value:
    return {
        "id": rule.rule_id,
        "decision": rule.decision.value,
        "author": rule.author,
        "reason": rule.reason,
        "tool": rule.tool,
        "effect": None if rule.effect is None else rule.effect.value,
        "program": rule.program,
        "argv": None if rule.argv is None else [_argument_value(item) for item in rule.argv],
        "rest": rule.rest,
        "cwd": rule.cwd,
        "env": sorted(rule.env),
        "stdin": rule.stdin,
        "secrets": sorted(rule.secrets),
    }
