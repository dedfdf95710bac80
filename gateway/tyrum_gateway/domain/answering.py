"""What a caller may answer to a question, and why not: told before anybody is asked.

Invariant: it says what the answer itself would be refused for; the answer is checked again all the same.
"""

from dataclasses import dataclass

from tyrum_gateway.domain.approval import NOT_THE_REQUESTER, Approval
from tyrum_gateway.domain.override import refusal
from tyrum_gateway.domain.principal import Principal, Role


@dataclass(frozen=True, slots=True)
class Bars:
    """Why a caller may not give an answer; empty where they may."""

    approve: str = ""
    always: str = ""
    """Of approving for good, without a pattern."""
    deny: str = ""


def bars(approval: Approval, principal: Principal, *, requester_may_approve: bool) -> Bars:
    """Tell what keeps a caller from answering; nothing is said of what is resolved.

    Args:
        approval: The question.
        principal: The caller.
        requester_may_approve: Whether who asked for the call may approve it.
    """
    if approval.resolution is not None:
        return Bars()
    if Role.APPROVER not in principal.roles:
        why = "answering needs the role `approver`"
        return Bars(approve=why, always=why, deny=why)
    if not requester_may_approve and approval.requested_by == principal.principal_id:
        return Bars(approve=NOT_THE_REQUESTER, always=NOT_THE_REQUESTER)
    if Role.OPERATOR not in principal.roles:
        return Bars(always="permitting for good needs the role `operator` besides")
    return Bars(always=refusal(approval))
