"""ApprovalService over the approvals desk: parse, call, convert."""

from typing import Any

from tyrum.approval.v1 import approval_pb2, approval_pb2_grpc
from tyrum_gateway.app.approvals import ApprovalDesk
from tyrum_gateway.domain.errors import InvalidRequest
from tyrum_gateway.domain.ids import ApprovalId, ConversationId
from tyrum_gateway.domain.ports import Store
from tyrum_gateway.rpc import convert
from tyrum_gateway.rpc.guard import caller

_LONGEST_DIGEST = 71


class ApprovalServicer(approval_pb2_grpc.ApprovalServiceServicer):
    """The approvals inbox."""

    def __init__(self, desk: ApprovalDesk, store: Store) -> None:
        self._desk = desk
        self._store = store

    async def ListApprovals(  # noqa: N802 - named by the contract
        self, request: approval_pb2.ListApprovalsRequest, context: Any
    ) -> approval_pb2.ListApprovalsResponse:
        """Page through approvals; the token is the last id of the page before."""
        size = convert.page_size(request.page_size, default=50, maximum=200)
        given, token = request.conversation_id, request.page_token
        found = await self._store.approvals(
            conversation_id=ConversationId.parse(given, "conversation_id") if given else None,
            include_resolved=request.include_resolved,
            after=ApprovalId.parse(token, "page_token") if token else None,
            limit=size + 1,
        )
        approvals, more = convert.page(found, size, convert.approval)
        return approval_pb2.ListApprovalsResponse(
            approvals=approvals, next_page_token=approvals[-1].approval_id if more else ""
        )

    async def GetApproval(  # noqa: N802 - named by the contract
        self, request: approval_pb2.GetApprovalRequest, context: Any
    ) -> approval_pb2.GetApprovalResponse:
        """Return an approval."""
        found = await self._store.approval(ApprovalId.parse(request.approval_id, "approval_id"))
        return approval_pb2.GetApprovalResponse(approval=convert.approval(found))

    async def ResolveApproval(  # noqa: N802 - named by the contract
        self, request: approval_pb2.ResolveApprovalRequest, context: Any
    ) -> approval_pb2.ResolveApprovalResponse:
        """Record the caller's answer."""
        approval_id = ApprovalId.parse(request.approval_id, "approval_id")
        approve = request.answer == approval_pb2.ANSWER_APPROVE
        if not approve and request.answer != approval_pb2.ANSWER_DENY:
            raise InvalidRequest("answer", "must be APPROVE or DENY")
        if len(request.digest) > _LONGEST_DIGEST or (approve and not request.digest):
            raise InvalidRequest("digest", "must be the digest of the approval as it was shown")
        resolved = await self._desk.resolve(
            caller(),
            approval_id,
            approve=approve,
            digest=request.digest,
            reason=convert.reason(request.reason),
        )
        return approval_pb2.ResolveApprovalResponse(approval=convert.approval(resolved))
