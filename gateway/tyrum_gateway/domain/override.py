"""Standing permissions (overrides): what a human permitted for good when approving a call.

Invariants: an override is derived from the approved call alone, literally unless the operator wrote a
pattern, and its program is always literal; none is derived from shell text, an interpreter, a wrapper, or a
program that others than root can replace; each ends by itself. Provider and profile never enter (ARCH-22).
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, assert_never

from tyrum_gateway.domain.approval import Approval, Resolution
from tyrum_gateway.domain.errors import InvalidRequest, KernelBug, OverrideNotDerivable
from tyrum_gateway.domain.ids import ApprovalId, OverrideId, PrincipalId
from tyrum_gateway.domain.policy import (
    AnyArgument,
    ArgumentMatch,
    Decision,
    Effect,
    Literal,
    Prefix,
    Provenance,
    Rule,
    Target,
    called_by_its_name,
    flaw,
    injects,
    looks_like_url,
    starts_others,
)

DEFAULT_LIFE = timedelta(days=30)
SHORTEST_LIFE = timedelta(seconds=1)
LONGEST_LIFE = timedelta(days=365)
"""How long an override holds: unless somebody says otherwise, at least, and at most."""

LONGEST_SUMMARY = 4096
"""Bytes of the longest summary: what nobody can read is not permitted for good."""

_TARGET_FIELDS = frozenset(
    {
        *("tool", "effect", "program", "argv", "cwd", "env", "stdin", "secrets", "agent", "provenance"),
        "replaceable",
    }
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """What the operator wrote to widen an override; the program stays as it was."""

    argv: tuple[ArgumentMatch, ...]
    """Arguments after the program's name."""
    rest: bool = False
    """Whether further arguments may follow."""
    env: frozenset[str] = frozenset()
    """Names that a call may set, to any value."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What an approver asks for beside the approval itself."""

    life: timedelta = DEFAULT_LIFE
    pattern: Pattern | None = None


@dataclass(frozen=True, slots=True)
class Revocation:
    """The end that a human gave an override."""

    at: datetime
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Override:
    """One standing permission, with who answers for it."""

    override_id: OverrideId
    agent: str
    rule: Rule
    """Decision ALLOW, its id the override's."""
    summary: str
    """What it permits, on one line for people."""
    approval_id: ApprovalId | None
    created_by: PrincipalId
    created_name: str
    created_method: str
    created_from: str
    created_reason: str
    created_at: datetime
    expires_at: datetime | None
    revocation: Revocation | None = None

    def in_force(self, now: datetime) -> bool:
        """Tell whether it permits anything at a moment."""
        return self.revocation is None and (self.expires_at is None or now < self.expires_at)


def permit(approval: Approval, wish: Wish) -> Override:
    """Make the override that the resolution of an approval names.

    Raises:
        OverrideNotDerivable: Nothing that is narrow enough can be made from the call; the text says why.
        InvalidRequest: The pattern does not fit the call, or admits what no override may.
    """
    resolution = approval.resolution
    if resolution is None or resolution.override_id is None or resolution.principal_id is None:
        raise KernelBug("nobody permitted this for good", approval=approval.approval_id)
    rule, summary = _permission(
        approval, wish.pattern, override_id=resolution.override_id, author=resolution.resolved_by
    )
    return Override(
        override_id=resolution.override_id,
        agent=approval.agent,
        rule=rule,
        summary=summary,
        approval_id=approval.approval_id,
        created_by=resolution.principal_id,
        created_name=resolution.resolved_by,
        created_method=resolution.method,
        created_from=resolution.origin,
        created_reason=resolution.reason,
        created_at=resolution.resolved_at,
        expires_at=_end(resolution, wish.life),
    )


def refusal(approval: Approval) -> str:
    """Say why nothing can be permitted for good without a pattern; empty when something can."""
    try:
        _permission(approval, None, override_id=OverrideId(""), author="")
    except (OverrideNotDerivable, InvalidRequest) as error:
        return error.public
    return ""


def _permission(
    approval: Approval, pattern: Pattern | None, *, override_id: OverrideId, author: str
) -> tuple[Rule, str]:
    """Derive the rule, with what it permits for people."""
    target = read_target(approval.target)
    rule = derive(target, pattern, override_id=override_id, author=author)
    _require_foreign(approval, target)
    summary = _summary(rule)
    if len(summary.encode(errors="replace")) > LONGEST_SUMMARY:
        raise _refusal("its arguments are too long for people to read")
    return rule, summary


def derive(target: Target, pattern: Pattern | None, *, override_id: OverrideId, author: str) -> Rule:
    """Derive the rule that permits calls like one target.

    Raises:
        OverrideNotDerivable: The target is none that may be permitted for good.
        InvalidRequest: The pattern does not fit the target.
    """
    why = _never(target)
    if not why and target.env and pattern is None:
        why = "it sets environment variables, whose values a permission cannot fix: name them in a pattern"
    if why:
        raise _refusal(why)
    wanted = pattern or Pattern(tuple(Literal(argument) for argument in target.argv[1:]))
    for name in sorted(wanted.env):
        if injects(name):
            raise InvalidRequest("override_pattern.env", f"names `{name}`, which programs obey as code")
    rule = Rule(
        rule_id=override_id,
        decision=Decision.ALLOW,
        author=author,
        reason=f"permitted for good by {author}",
        tool=target.tool,
        effect=target.effect,
        program=target.program,
        argv=wanted.argv,
        rest=wanted.rest,
        cwd=target.cwd,
        env=wanted.env,
        secrets=target.secrets,
    )
    for item in wanted.argv:
        if isinstance(item, Prefix) and looks_like_url(item.text) and (why := flaw(item.text)):
            raise InvalidRequest("override_pattern.argv", f"has a prefix that no URL may begin with: {why}")
    if not rule.matches(target):
        raise InvalidRequest("override_pattern", "does not fit the approved call itself")
    if rule.unanswered:
        raise InvalidRequest("override_pattern", f"leaves arguments open, and {_unanswered(rule)}")
    return rule


def outdated(rule: Rule) -> str:
    """Say why the rule of a stored override is wider than any may be by now; empty when it may stand."""
    return f"it leaves arguments open, and {_unanswered(rule)}" if rule.unanswered else ""


def revoke(override: Override, *, by: str, reason: str, now: datetime) -> Override:
    """End an override; one that was revoked before keeps its first end."""
    if override.revocation is not None:
        return override
    return replace(override, revocation=Revocation(now, by, reason))


def read_target(text: str) -> Target:
    """Read back what `Target.describe` wrote of a call that one program runs.

    Raises:
        OverrideNotDerivable: The text says more, or less, than such a target holds.
    """
    try:
        value = json.loads(text)
        if isinstance(value, dict) and "shell" in value:
            return Target(value["tool"], Effect(value["effect"]), shell=value["shell"])
        return _read(value)
    except (ValueError, KeyError, TypeError) as error:
        raise _refusal("policy saw more of it than one program with its arguments") from error


def _read(value: Mapping[str, Any]) -> Target:
    unknown = set(value) - _TARGET_FIELDS
    if unknown:
        raise ValueError(f"unknown fields {sorted(unknown)}")
    return Target(
        tool=value["tool"],
        effect=Effect(value["effect"]),
        program=value.get("program"),
        replaceable=value.get("replaceable", ""),
        argv=tuple(value.get("argv", ())),
        cwd=value.get("cwd", "."),
        env=frozenset(value.get("env", ())),
        stdin=value.get("stdin", False),
        secrets=frozenset(value.get("secrets", ())),
        agent=value.get("agent", ""),
        provenance=Provenance(value.get("provenance", Provenance.TRUSTED.value)),
    )


def _never(target: Target) -> str:
    """Say why nothing is ever derived from a target; empty when something can be."""
    if target.shell is not None:
        return "it is shell text that is not one plain command"
    if target.program is None or not target.argv:
        return "no single program with its arguments would run"
    name = PurePosixPath(target.program).name
    if starts_others(target.program) or starts_others(target.argv[0]):
        return f"`{name}` runs what its arguments, input or files name: permitting it permits anything"
    if not called_by_its_name(target.program, target.argv[0]):
        return f"`{name}` is called by another name or path, by which some choose what they do"
    if target.replaceable:
        return f"{target.replaceable} (install it where root alone may write)"
    if target.stdin:
        return "it reads standard input, which a permission cannot fix"
    injecting = sorted(item for item in target.env | target.secrets if injects(item))
    if injecting:
        return f"it sets `{injecting[0]}`, which programs obey as code"
    return ""


def _unanswered(rule: Rule) -> str:
    name = PurePosixPath(rule.program or "").name
    return (
        f"`{name}` may start what they name: fix each one by text, or have a rule of the configuration "
        "with `may_start_others: true` answer for it"
    )


def _require_foreign(approval: Approval, target: Target) -> None:
    """Refuse a program where the agent can write: whoever can decides what it does."""
    try:
        workspace = PurePosixPath(json.loads(approval.subject.json)["workspace"]["path"])
    except (ValueError, KeyError, TypeError):
        workspace = None
    program = PurePosixPath(target.program or "/")
    if workspace is None or program.is_relative_to(workspace):
        raise _refusal(f"the agent can rewrite `{program.name}`, which lies in its workspace")


def _refusal(why: str) -> OverrideNotDerivable:
    return OverrideNotDerivable(f"this call cannot be permitted for good: {why}; approving it once works")


def _end(resolution: Resolution, life: timedelta) -> datetime:
    if not SHORTEST_LIFE <= life <= LONGEST_LIFE:
        raise InvalidRequest("override_expires_in", f"must be 1 s to {LONGEST_LIFE.days} days")
    return resolution.resolved_at + life


def _summary(rule: Rule) -> str:
    words = [shlex.quote(rule.program or ""), *(_word(item) for item in rule.argv or ())]
    if rule.rest:
        words.append("<any more>")
    words.append(f"(in {shlex.quote(rule.cwd or '.')})")
    words += [f"(env {name})" for name in sorted(rule.env)]
    words += [f"(secret {name})" for name in sorted(rule.secrets)]
    return " ".join(words)


def _word(pattern: ArgumentMatch) -> str:
    match pattern:
        case Literal(text):
            return shlex.quote(text)
        case Prefix(text):
            return f"<begins with {shlex.quote(text)}>"
        case AnyArgument():
            return "<any>"
        case _:
            assert_never(pattern)
