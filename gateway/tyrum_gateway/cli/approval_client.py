"""Approvals over gRPC, and how one is shown. Invariant: what is answered is what was shown, by digest."""

import json
import shlex

from tyrum.approval.v1.approval_pb2 import (
    Approval,
    GetApprovalRequest,
    ListApprovalsRequest,
    ResolveApprovalRequest,
)
from tyrum.chat.v1.event_pb2 import ApprovalOutcome
from tyrum_gateway.cli.connection import DEADLINE, Gateway
from tyrum_gateway.cli.output import enum_word, fields, heading, moment, say

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
    """Write on one line what would be called: the resolved program with its arguments."""
    try:
        subject = json.loads(approval.subject_json)
        return shlex.join([subject["program"]["path"], *subject["argv"][1:]])
    except (ValueError, KeyError, TypeError):
        return " ".join(approval.summary.split())


def show(approval: Approval, *, subject: bool = False) -> None:
    """Print what a human decides on; with `subject` also the canonical JSON that the digest is taken over."""
    heading(f"Approval {approval.approval_id}")
    say(approval.summary)
    fields(
        [
            ("state", outcome_word(approval)),
            ("tool", approval.tool),
            ("asked by rule", approval.rule_id),
            ("agent", approval.agent),
            ("for", requester(approval)),
            ("conversation", approval.conversation_id),
            ("expires", moment(approval.expires_at)),
            ("resolved by", resolver(approval)),
            ("resolved", moment(approval.resolved_at)),
            ("reason", approval.reason),
            ("permitted", f"for good as {approval.override_id}" if approval.override_id else ""),
            ("digest", approval.digest),
            ("you may", _yours(approval)),
        ]
    )
    if subject:
        heading("Subject")
        say(_indented(approval.subject_json))


def _yours(approval: Approval) -> str:
    """List the answers that the caller may give; empty when it is resolved."""
    if approval.outcome:
        return ""
    answers = {
        "approve": approval.approve_barred,
        "approve --always": approval.always_barred,
        "deny": approval.deny_barred,
    }
    return ", ".join(answer for answer, why in answers.items() if not why) or "only read it"


def requester(approval: Approval) -> str:
    """Write on whose behalf the call would run: the principal's name, its id when no name is known."""
    return approval.requested_by_name or approval.requested_by


def resolver(approval: Approval) -> str:
    """Write who answered, how they were authenticated and from where; empty when nobody did."""
    if not approval.resolved_by:
        return ""
    origin = f", {approval.resolved_from}" if approval.resolved_from else ""
    return f"{approval.resolved_by} ({approval.method}{origin})"


def _indented(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2)
    except ValueError:
        return text
