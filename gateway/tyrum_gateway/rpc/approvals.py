"""ApprovalService over the approvals desk: parse, call, convert."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, assert_never

from tyrum.approval.v1 import approval_pb2, approval_pb2_grpc
from tyrum_gateway.app.approval_watch import CaughtUp
from tyrum_gateway.app.approvals import ApprovalDesk
from tyrum_gateway.domain.approval import Approval
from tyrum_gateway.domain.errors import InvalidRequest
from tyrum_gateway.domain.ids import ApprovalId, ConversationId
from tyrum_gateway.domain.override import DEFAULT_LIFE, Wish
from tyrum_gateway.domain.ports import Store
from tyrum_gateway.rpc import convert
from tyrum_gateway.rpc.convert_override import life, pattern
from tyrum_gateway.rpc.guard import caller
from tyrum_gateway.rpc.paging import enough

_LONGEST_DIGEST = 71
_ANSWERS = frozenset(
    {approval_pb2.ANSWER_APPROVE, approval_pb2.ANSWER_APPROVE_ALWAYS, approval_pb2.ANSWER_DENY}
)

Watch = Callable[[ConversationId | None], AsyncGenerator[Approval | CaughtUp, None]]
"""Watches the approvals of a conversation, or all of them."""


class ApprovalServicer(approval_pb2_grpc.ApprovalServiceServicer):
    """The approvals inbox."""

    def __init__(self, desk: ApprovalDesk, store: Store, watch: Watch) -> None:
        self._desk = desk
        self._store = store
        self._watch = watch

    async def ListApprovals(  # noqa: N802 - named by the contract
        self, request: approval_pb2.ListApprovalsRequest, context: Any
    ) -> approval_pb2.ListApprovalsResponse:
        """Page through approvals; the token is the last id of the page before."""
        size = convert.page_size(request.page_size, default=50, maximum=200)
        given, token = request.conversation_id, request.page_token
        conversation_id = ConversationId.parse(given, "conversation_id") if given else None
        before = ApprovalId.parse(token, "page_token") if token else None

        async def read(last: Approval | None, limit: int) -> Sequence[Approval]:
            return await self._store.approvals(
                conversation_id=conversation_id,
                include_resolved=request.include_resolved,
                after=last.approval_id if last else before,
                limit=limit,
            )

        found = await enough(read, _size, size + 1)
        approvals, more = convert.page(found, size, self._approval)
        return approval_pb2.ListApprovalsResponse(
            approvals=approvals, next_page_token=approvals[-1].approval_id if more else ""
        )

    async def GetApproval(  # noqa: N802 - named by the contract
        self, request: approval_pb2.GetApprovalRequest, context: Any
    ) -> approval_pb2.GetApprovalResponse:
        """Return an approval."""
        found = await self._store.approval(ApprovalId.parse(request.approval_id, "approval_id"))
        return approval_pb2.GetApprovalResponse(approval=self._approval(found))

    async def ResolveApproval(  # noqa: N802 - named by the contract
        self, request: approval_pb2.ResolveApprovalRequest, context: Any
    ) -> approval_pb2.ResolveApprovalResponse:
        """Record the caller's answer."""
        approval_id = ApprovalId.parse(request.approval_id, "approval_id")
        if request.answer not in _ANSWERS:
            raise InvalidRequest("answer", "must be APPROVE, APPROVE_ALWAYS or DENY")
        approve = request.answer != approval_pb2.ANSWER_DENY
        if len(request.digest) > _LONGEST_DIGEST or (approve and not request.digest):
            raise InvalidRequest("digest", "must be the digest of the approval as it was shown")
        resolved = await self._desk.resolve(
            caller(),
            approval_id,
            approve=approve,
            digest=request.digest,
            reason=convert.reason(request.reason),
            always=_always(request),
        )
        return approval_pb2.ResolveApprovalResponse(approval=self._approval(resolved))

    async def WatchApprovals(  # noqa: N802 - named by the contract
        self, request: approval_pb2.WatchApprovalsRequest, context: Any
    ) -> AsyncGenerator[approval_pb2.WatchApprovalsResponse, None]:
        """Stream what waits, then what changes."""
        given = request.conversation_id
        items = self._watch(ConversationId.parse(given, "conversation_id") if given else None)
        async with aclosing(items) as stream:
            async for item in stream:
                match item:
                    case CaughtUp():
                        yield approval_pb2.WatchApprovalsResponse(caught_up=approval_pb2.CaughtUp())
                    case Approval():
                        yield approval_pb2.WatchApprovalsResponse(approval=self._approval(item))
                    case _:
                        assert_never(item)

    def _approval(self, item: Approval) -> approval_pb2.Approval:
        return convert.approval(item, self._desk.bars(caller(), item))


def _size(approval: Approval) -> int:
    return len(approval.subject.json) + len(approval.subject.summary)


def _always(request: approval_pb2.ResolveApprovalRequest) -> Wish | None:
    if request.answer != approval_pb2.ANSWER_APPROVE_ALWAYS:
        for field in ("override_expires_in", "override_pattern"):
            if request.HasField(field):
                raise InvalidRequest(field, "stands only with APPROVE_ALWAYS")
        return None
    return Wish(
        life=life(request.override_expires_in) if request.HasField("override_expires_in") else DEFAULT_LIFE,
        pattern=pattern(request.override_pattern) if request.HasField("override_pattern") else None,
    )
