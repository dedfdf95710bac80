"""Values of the domain for tests, with ids that count up."""

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TypeVar

from hypothesis import HealthCheck

from tyrum_gateway.domain.approval import Approval, Subject
from tyrum_gateway.domain.ids import (
    ApprovalId,
    BindingId,
    CallId,
    ConversationId,
    EntityId,
    OperationId,
    PrincipalId,
    ProcessId,
    TurnId,
)
from tyrum_gateway.domain.policy import Decision, Verdict
from tyrum_gateway.domain.principal import Principal, Role
from tyrum_gateway.domain.states import TurnState
from tyrum_gateway.domain.turn import Turn
from tyrum_gateway.domain.turn_events import CallBegun, ProposedCall

SLOW = (HealthCheck.too_slow,)
"""Checks of the machine rather than of the code: a busy machine is no failure."""

NOW = datetime(2026, 1, 2, tzinfo=UTC)
EXPIRES = NOW + timedelta(hours=24)
Id = TypeVar("Id", bound=EntityId)
_numbers = count(1)


def fresh(kind: type[Id]) -> Id:
    """Make an id that no other value of the test run has."""
    return kind.build(next(_numbers), bytes(10))


ALICE = Principal(fresh(PrincipalId), "Alice", frozenset({Role.APPROVER}), "token")
BOB = Principal(fresh(PrincipalId), "Bob", frozenset({Role.APPROVER}), "token")


def turn() -> Turn:
    """Make a queued turn."""
    return Turn(
        fresh(TurnId), fresh(ConversationId), ALICE.principal_id, TurnState.QUEUED, NOW, number=1, version=1
    )


def verdict(decision: Decision) -> Verdict:
    """Make a policy decision."""
    return Verdict(decision, "rule", "because", "sha256:0", "{}")


def approval(call_id: CallId, subject: str = "{}") -> Approval:
    """Make a pending approval of a call."""
    return Approval(
        fresh(ApprovalId),
        fresh(ConversationId),
        fresh(TurnId),
        call_id,
        "process.run",
        Subject(subject, "what would run"),
        "rule",
        ALICE.principal_id,
        NOW,
        EXPIRES,
    )


def proposed(decision: Decision | None) -> ProposedCall:
    """Make a call that policy decided on, or that is invalid."""
    call_id = fresh(CallId)
    if decision is None:
        return ProposedCall(call_id, "process.run", "{}", None, "`argv` is missing")
    question = approval(call_id) if decision is Decision.REQUIRE_APPROVAL else None
    return ProposedCall(call_id, "process.run", "{}", verdict(decision), approval=question)


def begun(call_id: CallId) -> CallBegun:
    """Make the event that a call is about to be executed."""
    return CallBegun(call_id, fresh(OperationId), fresh(ProcessId), fresh(BindingId))
