"""Between standing permissions and client messages; inwards every field is checked against its limits."""

import re
from datetime import timedelta
from typing import assert_never

from google.protobuf.duration_pb2 import Duration

from tyrum.policy.v1 import policy_pb2
from tyrum_gateway.domain.errors import InvalidRequest
from tyrum_gateway.domain.override import LONGEST_LIFE, SHORTEST_LIFE, Override, Pattern
from tyrum_gateway.domain.policy import AnyArgument, ArgumentMatch, Literal, Prefix
from tyrum_gateway.rpc.convert import timestamp

MOST_ARGUMENTS = 255
MOST_NAMES = 64

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def life(duration: Duration) -> timedelta:
    """Check how long an override is to hold."""
    shortest, longest = SHORTEST_LIFE.total_seconds(), LONGEST_LIFE.total_seconds()
    seconds = duration.seconds + duration.nanos / 1e9
    if not shortest <= seconds <= longest or duration.nanos < 0:
        raise InvalidRequest("override_expires_in", f"must be 1 s to {LONGEST_LIFE.days} days")
    return timedelta(seconds=seconds)


def pattern(message: policy_pb2.OverridePattern) -> Pattern:
    """Check what the operator wrote."""
    if len(message.argv) > MOST_ARGUMENTS:
        raise InvalidRequest("override_pattern.argv", f"must have at most {MOST_ARGUMENTS} items")
    if len(message.env) > MOST_NAMES:
        raise InvalidRequest("override_pattern.env", f"must have at most {MOST_NAMES} items")
    for name in message.env:
        if not _NAME.fullmatch(name):
            raise InvalidRequest("override_pattern.env", "must hold names of environment variables")
    return Pattern(tuple(_argument(item) for item in message.argv), message.rest, frozenset(message.env))


def _argument(message: policy_pb2.ArgumentMatch) -> ArgumentMatch:
    match message.WhichOneof("match"):
        case "literal":
            return Literal(message.literal)
        case "prefix" if message.prefix:
            return Prefix(message.prefix)
        case "any" if message.any:
            return AnyArgument()
        case _:
            raise InvalidRequest(
                "override_pattern.argv",
                "each item must be a literal, a prefix of at least one character or any",
            )


def override(item: Override) -> policy_pb2.Override:
    """Write an override."""
    rule = item.rule
    message = policy_pb2.Override(
        override_id=item.override_id,
        agent=item.agent,
        tool=rule.tool or "",
        program=rule.program or "",
        pattern=policy_pb2.OverridePattern(
            argv=[_match(part) for part in rule.argv or ()], rest=rule.rest, env=sorted(rule.env)
        ),
        cwd=rule.cwd or "",
        secrets=sorted(rule.secrets),
        summary=item.summary,
        approval_id=item.approval_id or "",
        created_by=item.created_name,
        created_method=item.created_method,
        created_from=item.created_from,
        created_reason=item.created_reason,
        created_at=timestamp(item.created_at),
    )
    if item.expires_at is not None:
        message.expires_at.CopyFrom(timestamp(item.expires_at))
    if item.revocation is not None:
        message.revoked_at.CopyFrom(timestamp(item.revocation.at))
        message.revoked_by = item.revocation.by
        message.revoked_reason = item.revocation.reason
    return message


def _match(part: ArgumentMatch) -> policy_pb2.ArgumentMatch:
    match part:
        case Literal(text):
            return policy_pb2.ArgumentMatch(literal=text)
        case Prefix(text):
            return policy_pb2.ArgumentMatch(prefix=text)
        case AnyArgument():
            return policy_pb2.ArgumentMatch(any=True)
        case _:
            assert_never(part)
