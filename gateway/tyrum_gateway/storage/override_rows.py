"""Rows of standing permissions and what they stand for.

Invariant: what an override permits is read back exactly as it was written, or refused as damage.
"""

import json
import sqlite3
from collections.abc import Mapping
from typing import Any, assert_never

from tyrum_gateway.domain.canonical import Value, canonical_json
from tyrum_gateway.domain.errors import Damaged
from tyrum_gateway.domain.ids import ApprovalId, OverrideId, PrincipalId
from tyrum_gateway.domain.override import Override, Revocation
from tyrum_gateway.domain.policy import AnyArgument, ArgumentMatch, Decision, Effect, Literal, Prefix, Rule
from tyrum_gateway.storage.times import from_microseconds, to_microseconds


def values(override: Override) -> Mapping[str, Any]:
    """Return the row of an override."""
    ended = override.revocation
    return {
        "override_id": override.override_id,
        "agent": override.agent,
        "rule": canonical_json(_rule_value(override.rule)),
        "summary": override.summary,
        "approval_id": override.approval_id,
        "created_principal_id": override.created_by,
        "created_by": override.created_name,
        "created_method": override.created_method,
        "created_from": override.created_from,
        "created_reason": override.created_reason,
        "created_at": to_microseconds(override.created_at),
        "expires_at": None if override.expires_at is None else to_microseconds(override.expires_at),
        "revoked_at": None if ended is None else to_microseconds(ended.at),
        "revoked_by": "" if ended is None else ended.by,
        "revoked_reason": "" if ended is None else ended.reason,
    }


def read(row: sqlite3.Row) -> Override:
    """Read an override.

    Raises:
        Damaged: Its rule is not of the form that is written.
    """
    revocation = None
    if row["revoked_at"] is not None:
        revocation = Revocation(
            from_microseconds(row["revoked_at"]), row["revoked_by"], row["revoked_reason"]
        )
    return Override(
        override_id=OverrideId(row["override_id"]),
        agent=row["agent"],
        rule=_rule(row["override_id"], row["rule"]),
        summary=row["summary"],
        approval_id=None if row["approval_id"] is None else ApprovalId(row["approval_id"]),
        created_by=PrincipalId(row["created_principal_id"]),
        created_name=row["created_by"],
        created_method=row["created_method"],
        created_from=row["created_from"],
        created_reason=row["created_reason"],
        created_at=from_microseconds(row["created_at"]),
        expires_at=None if row["expires_at"] is None else from_microseconds(row["expires_at"]),
        revocation=revocation,
    )


def _rule_value(rule: Rule) -> Value:
    """Write what an override can set of a rule; nothing else is ever read back."""
    return {
        "author": rule.author,
        "reason": rule.reason,
        "tool": rule.tool,
        "effect": None if rule.effect is None else rule.effect.value,
        "program": rule.program,
        "argv": [_argument_value(item) for item in rule.argv or ()],
        "rest": rule.rest,
        "cwd": rule.cwd,
        "env": sorted(rule.env),
        "secrets": sorted(rule.secrets),
    }


def _rule(override_id: str, text: str) -> Rule:
    try:
        value = json.loads(text)
        return Rule(
            rule_id=override_id,
            decision=Decision.ALLOW,
            author=_text(value["author"]),
            reason=_text(value["reason"]),
            tool=_text(value["tool"]),
            effect=Effect(value["effect"]),
            program=_text(value["program"]),
            argv=tuple(_argument(item) for item in value["argv"]),
            rest=value["rest"] is True,
            cwd=_text(value["cwd"]),
            env=frozenset(_text(name) for name in value["env"]),
            secrets=frozenset(_text(name) for name in value["secrets"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(
            f"the database holds the damaged override `{override_id}`", override=override_id
        ) from error


def _argument_value(pattern: ArgumentMatch) -> Value:
    match pattern:
        case Literal(text):
            return {"literal": text}
        case Prefix(text):
            return {"prefix": text}
        case AnyArgument():
            return {"any": True}
        case _:
            assert_never(pattern)


def _argument(value: Any) -> ArgumentMatch:
    match value:
        case {"literal": str(text)}:
            return Literal(text)
        case {"prefix": str(text)} if text:
            return Prefix(text)
        case {"any": True}:
            return AnyArgument()
        case _:
            raise ValueError("not a condition on an argument")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value
