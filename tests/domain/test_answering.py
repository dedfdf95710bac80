"""What a caller is told beforehand is what an answer would be refused for."""

from dataclasses import replace

import pytest

from tests.domain.samples import ALICE, BOB, NOW, approval, fresh
from tyrum_gateway.domain.answering import Bars, bars
from tyrum_gateway.domain.approval import Approval, Outcome, Subject, close
from tyrum_gateway.domain.errors import OverrideNotDerivable
from tyrum_gateway.domain.ids import CallId, OverrideId
from tyrum_gateway.domain.override import derive, read_target, refusal
from tyrum_gateway.domain.policy import Effect, Target
from tyrum_gateway.domain.principal import Role

TOUCH = Target("process.run", Effect.STATE_CHANGING, program="/usr/bin/touch", argv=("touch", "a"))
OPERATOR = replace(BOB, roles=frozenset({Role.APPROVER, Role.OPERATOR}))
"""Somebody else than who asks in `asked`."""


def asked(target: Target = TOUCH) -> Approval:
    """A question of Alice."""
    question = approval(fresh(CallId))
    subject = Subject('{"workspace":{"path":"/srv/agent"}}', "what")
    return replace(question, requested_by=ALICE.principal_id, subject=subject, target=target.describe())


def test_nothing_is_in_the_way_of_another_operator() -> None:
    """Whoever has both roles and did not ask may give every answer, whatever requesters may."""
    for may in (True, False):
        assert bars(asked(), OPERATOR, requester_may_approve=may) == Bars()


def test_an_approver_permits_nothing_for_good() -> None:
    """Without the role operator only the permission for good is barred, and the role is named."""
    found = bars(asked(), BOB, requester_may_approve=True)
    assert (found.approve, found.deny) == ("", "")
    assert "`operator`" in found.always


def test_without_the_role_nothing_can_be_answered() -> None:
    """A principal that only talks is told of the role for every answer."""
    found = bars(asked(), replace(ALICE, roles=frozenset({Role.CHAT})), requester_may_approve=True)
    assert {found.approve, found.always, found.deny} == {"answering needs the role `approver`"}


def test_a_requester_who_may_not_approve_can_deny() -> None:
    """Where somebody else has to look, who asked is told so, and may still deny."""
    requester = replace(ALICE, roles=OPERATOR.roles)
    found = bars(asked(), requester, requester_may_approve=False)
    assert "somebody else" in found.approve
    assert (found.always, found.deny) == (found.approve, "")
    assert bars(asked(), requester, requester_may_approve=True) == Bars()


@pytest.mark.parametrize(
    "target",
    [
        replace(TOUCH, program="/usr/bin/bash", argv=("bash", "-c", "true")),
        replace(TOUCH, program="/usr/bin/env", argv=("env", "true")),
        replace(TOUCH, stdin=True),
        replace(TOUCH, env=frozenset({"A"})),
        Target("process.run", Effect.STATE_CHANGING, shell="true; true"),  # noqa: S604 - nothing runs
        replace(TOUCH, program="/srv/agent/touch"),
        replace(TOUCH, argv=("touch", "a" * 5000)),
    ],
    ids=["interpreter", "wrapper", "input", "environment", "shell", "workspace", "long"],
)
def test_what_cannot_be_permitted_for_good_is_told_with_its_reason(target: Target) -> None:
    """Approving stays possible; why nothing more is, is what the refusal itself would say."""
    question = asked(target)
    found = bars(question, OPERATOR, requester_may_approve=True)
    assert (found.approve, found.deny) == ("", "")
    assert found.always == refusal(question)
    assert "cannot be permitted for good" in found.always


def test_the_reason_is_that_of_the_refusal() -> None:
    """The text told beforehand and the one of the error are one."""
    question = asked(replace(TOUCH, stdin=True))
    with pytest.raises(OverrideNotDerivable) as refused:
        derive(read_target(question.target), None, override_id=fresh(OverrideId), author="Bob")
    assert refused.value.public == refusal(question)


def test_nothing_is_said_of_what_is_resolved() -> None:
    """A resolved question bars nobody: there is nothing left to answer."""
    resolved = close(asked(), Outcome.EXPIRED, NOW, "nobody answered")
    assert bars(resolved, replace(ALICE, roles=frozenset()), requester_may_approve=False) == Bars()
