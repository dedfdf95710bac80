"""Rules: conditions on a target, and the decision when all of them hold.

Invariant: an allow admits only what it lists; a deny and a require_approval apply whatever rides along.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tyrum_gateway.domain.canonical import Value
from tyrum_gateway.domain.policy.harmless import reads_data, starts_nothing
from tyrum_gateway.domain.policy.names import called_by_its_name, injects
from tyrum_gateway.domain.policy.target import Effect, Provenance, Target
from tyrum_gateway.domain.policy.url import begins_url, looks_like_url


class Decision(StrEnum):
    """Outcome of a policy evaluation."""

    ALLOW = "allow"
    REQUIRE_APPROVAL = "require_approval"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Literal:
    """Exactly this argument."""

    text: str


@dataclass(frozen=True, slots=True)
class Prefix:
    """An argument that begins so; to an allow, without `..` as a part of the path that follows.

    What looks like a URL is compared as one, see `url`.
    """

    text: str


@dataclass(frozen=True, slots=True)
class AnyArgument:
    """One argument, whatever it is."""


_PATH_PARTS = re.compile("[/=:,@]")
"""What stands before a part of a path, also of one inside an argument such as `--file=../x`."""

ArgumentMatch = Literal | Prefix | AnyArgument


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
    agent: str | None = None
    provenance: Provenance | None = None
    in_shell: bool = False
    """Only calls that a shell runs; an allow never matches them as a whole."""
    program: str | None = None
    """Resolved absolute path."""
    argv: tuple[ArgumentMatch, ...] | None = None
    """Arguments after argv[0]; None admits any."""
    rest: bool = False
    """Whether further arguments may follow `argv`."""
    cwd: str | None = None
    """Relative to the workspace; None admits any directory in it."""
    env: frozenset[str] = frozenset()
    """Environment names that may be set; one that injects code (`injects`) may not, listed or not."""
    stdin: bool = False
    """Whether standard input may be given."""
    secrets: frozenset[str] = frozenset()
    """Secrets that may be projected."""
    replaceable: bool = False
    """Whether the program may lie where others than root can replace it."""
    may_start_others: bool = False
    """Whether the author answers for what an open argument makes a program start that is not harmless."""

    @property
    def unanswered(self) -> bool:
        """Tell whether calls may choose what runs without an author who answers for that.

        True of an allow that leaves arguments or standard input open to a program of which it is not known
        that it starts nothing. Such a rule is not to be put in force.
        """
        if self.decision is not Decision.ALLOW or self.effect is Effect.READ_ONLY or self.may_start_others:
            return False
        fixed = self.argv is not None and all(isinstance(item, Literal) for item in self.argv)
        program = self.program or ""
        if not fixed or self.rest:
            return not starts_nothing(program)
        return self.stdin and not reads_data(program)

    def matches(self, target: Target) -> bool:
        """Tell whether the rule applies to the target itself; commands inside shell text are `parts` of it.

        A deny or require_approval rule applies whatever rides along; an allow rule applies only when the
        target carries nothing that the rule does not list, and its program is called by its own name.
        """
        named = (
            (self.tool is None or self.tool == target.tool)
            and (self.effect is None or self.effect == target.effect)
            and (self.agent is None or self.agent == target.agent)
            and (self.provenance is None or self.provenance == target.provenance)
            and (not self.in_shell or target.shell is not None)
            and (self.program is None or self.program in {target.program, target.interpreter})
            and (self.argv is None or self._argv_matches(self.argv, target))
            and (self.cwd is None or self.cwd == target.cwd)
        )
        if not named:
            return False
        return self.decision is not Decision.ALLOW or self._admits_extras(target)

    def _argv_matches(self, patterns: Sequence[ArgumentMatch], target: Target) -> bool:
        if target.shell is not None:
            return not patterns and self.rest
        arguments = target.argv[1:]
        if len(arguments) < len(patterns):
            return False
        # What is not complete may go on.
        if not self.rest and (len(arguments) > len(patterns) or not target.complete):
            return False
        pairs = list(zip(patterns, arguments, strict=False))
        if self.decision is Decision.ALLOW and any(climbs(*pair) for pair in pairs):
            return False
        return all(argument_matches(*pair) for pair in pairs)

    def _admits_extras(self, target: Target) -> bool:
        return (
            target.shell is None
            and target.complete
            and self._called_by_its_name(target)
            and target.env <= self.env
            and not any(injects(name) for name in target.env | target.secrets)
            and target.secrets <= self.secrets
            and (self.stdin or not target.stdin)
            and (self.replaceable or not target.replaceable)
        )

    def _called_by_its_name(self, target: Target) -> bool:
        return self.program is None or bool(target.argv and called_by_its_name(self.program, target.argv[0]))

    def value(self) -> Value:
        """Write the rule down for its digest."""
        value: dict[str, Value] = {
            "id": self.rule_id,
            "decision": self.decision.value,
            "author": self.author,
            "reason": self.reason,
            "tool": self.tool,
            "effect": None if self.effect is None else self.effect.value,
            "agent": self.agent,
            "provenance": None if self.provenance is None else self.provenance.value,
            "in_shell": self.in_shell,
            "program": self.program,
            "argv": None if self.argv is None else [_argument_value(item) for item in self.argv],
            "rest": self.rest,
            "cwd": self.cwd,
            "env": sorted(self.env),
            "stdin": self.stdin,
            "secrets": sorted(self.secrets),
        }
        if self.replaceable:
            value["replaceable"] = True
        if self.may_start_others:
            value["may_start_others"] = True
        return value


def argument_matches(pattern: ArgumentMatch, argument: str) -> bool:
    """Tell whether one argument is as a pattern says; what an allow wants besides is `climbs`."""
    match pattern:
        case Literal(text):
            return argument == text
        case Prefix(text):
            return argument.startswith(text) or (looks_like_url(text) and begins_url(text, argument))
        case AnyArgument():
            return True


def climbs(pattern: ArgumentMatch, argument: str) -> bool:
    """Tell whether an argument leaves the directory, or the site, by which a prefix lets it begin."""
    if not isinstance(pattern, Prefix):
        return False
    prefix = pattern.text
    if looks_like_url(prefix) and not begins_url(prefix, argument):
        return True
    # The dots that end a prefix may become `..` with what follows, and behind `-C` a path begins at once.
    begun = len(prefix.rstrip("."))
    return _parents(argument) > _parents(prefix) or _parents(argument[begun:]) > _parents(prefix[begun:])


def _parents(argument: str) -> int:
    return _PATH_PARTS.split(argument).count("..")


def _argument_value(pattern: ArgumentMatch) -> Value:
    match pattern:
        case Literal(text):
            return {"literal": text}
        case Prefix(text):
            return {"prefix": text}
        case AnyArgument():
            return {"any": True}
