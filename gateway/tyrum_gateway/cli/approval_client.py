"""Approvals over gRPC, and how one is named on a line. Invariant: what is answered is named by its digest."""

import json
import shlex
from collections.abc import Sequence

from tyrum.approval.v1.approval_pb2 import (
    Approval,
    GetApprovalRequest,
    ListApprovalsRequest,
    ResolveApprovalRequest,
)
from tyrum.chat.v1.event_pb2 import ApprovalOutcome
from tyrum_gateway.cli.connection import DEADLINE, Gateway
from tyrum_gateway.cli.output import enum_word

_PAGE = 200


async def get(gateway: Gateway, approval_id: str) -> Approval:
    """Read one approval."""
    response = await gateway.approvals.GetApproval(
        GetApprovalRequest(approval_id=approval_id), metadata=gateway.metadata, timeout=DEADLINE
    )
    return response.approval


async def every(gateway: Gateway, *, resolved: bool, conversation_id: str) -> list[Approval]:
    """Read all approvals, oldest first, through all pages."""
    found: list[Approval] = []
    token = ""
    while True:
        page = await gateway.approvals.ListApprovals(
            ListApprovalsRequest(
                include_resolved=resolved, conversation_id=conversation_id, page_size=_PAGE, page_token=token
            ),
            metadata=gateway.metadata,
            timeout=DEADLINE,
        )
        found += page.approvals
        token = page.next_page_token
        if not token:
            return found


async def resolve(gateway: Gateway, request: ResolveApprovalRequest) -> Approval:
    """Answer an approval."""
    response = await gateway.approvals.ResolveApproval(request, metadata=gateway.metadata, timeout=DEADLINE)
    return response.approval


def outcome_word(approval: Approval) -> str:
    """Write the outcome for people; `pending` while there is none."""
    if not approval.outcome:
        return "pending"
    return enum_word(ApprovalOutcome, approval.outcome, "APPROVAL_OUTCOME_")


def call_line(approval: Approval) -> str:
    """Write on one line what would be called: the resolved program, its name as typed, the arguments."""
    try:
        subject = json.loads(approval.subject_json)
        return command_line(subject["program"]["path"], subject["argv"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return " ".join(approval.summary.split())


def command_line(program: str, argv: Sequence[str]) -> str:
    """Write a command; before the program's path stands its name as it was typed, where that is another."""
    typed = "" if argv[0] == program else f"{shlex.quote(argv[0])}: "
    return typed + shlex.join([program, *argv[1:]])


def requester(approval: Approval) -> str:
    """Write on whose behalf the call would run: the principal's name, its id when no name is known."""
    return approval.requested_by_name or approval.requested_by


def resolver(approval: Approval) -> str:
    """Write who answered, how they were authenticated and from where; empty when nobody did."""
    if not approval.resolved_by:
        return ""
    origin = f", {approval.resolved_from}" if approval.resolved_from else ""
    return f"{approval.resolved_by} ({approval.method}{origin})"
