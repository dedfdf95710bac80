"""The approvals inbox over gRPC."""

from collections.abc import AsyncIterable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

import grpc.aio

from tyrum.approval.v1.approval_pb2 import (
    ANSWER_APPROVE,
    ANSWER_DENY,
    Approval,
    ResolveApprovalRequest,
    WatchApprovalsRequest,
    WatchApprovalsResponse,
)
from tyrum.identity.v1.identity_pb2 import ROLE_APPROVER, ROLE_OPERATOR, WhoAmIRequest
from tyrum_gateway.cli.approval_client import (
    call_line,
    every,
    get,
    outcome_word,
    requester,
    resolve,
    resolver,
)
from tyrum_gateway.cli.approval_view import ask, show
from tyrum_gateway.cli.connection import DEADLINE, Gateway, Target, connect, find, flags, reason_of
from tyrum_gateway.cli.failure import ExitCode, Failure, from_reason
from tyrum_gateway.cli.output import Format, as_json, emit, emit_all, interactive, moment, note, say
from tyrum_gateway.cli.question import confirmed
from tyrum_gateway.cli.reconnect import resilient
from tyrum_gateway.cli.tables import Cell, Column, table, when
from tyrum_gateway.cli.terminal import shortened

if TYPE_CHECKING:
    from tyrum_gateway.cli.always import Always

__all__ = ["approve", "deny", "find", "list_approvals", "show_approval", "watch"]

_WIDTH = 80
_WAITING = (
    Column("APPROVAL"),
    Column("STATE", leaves=3),
    Column("FOR", leaves=2),
    Column("EXPIRES", leaves=1),
    Column("WHAT", least=30),
)
_ALL = (
    Column("APPROVAL"),
    Column("STATE"),
    Column("FOR", leaves=2),
    Column("EXPIRES", leaves=5),
    Column("RESOLVED", leaves=4),
    Column("BY", leaves=1),
    Column("REASON", leaves=3),
    Column("WHAT", least=30),
)
_ALWAYS = "Approve this, and calls like it without asking from now on?"


async def list_approvals(
    target: Target, conversation_id: str, output: Format, *, resolved: bool, wide: bool
) -> None:
    """Print the approvals that wait, or all of them."""
    async with connect(target) as gateway:
        found = await every(gateway, resolved=resolved, conversation_id=conversation_id)
    if output is not Format.TEXT:
        emit_all(found, output)
        return
    if not found:
        note("there are no approvals" if resolved else "nothing waits for an approval")
        return
    if resolved:
        table(
            _ALL,
            [_row(item, when(item.resolved_at), resolver(item), _shown(item.reason)) for item in found],
            wide=wide,
        )
    else:
        table(_WAITING, [_row(item) for item in found], wide=wide)


def _row(item: Approval, *resolution: str | Cell) -> tuple[str | Cell, ...]:
    what = shortened(call_line(item), _WIDTH)
    state, expires = outcome_word(item), when(item.expires_at)
    return (item.approval_id, state, requester(item), expires, *resolution, what)


def _shown(reason: str) -> str:
    return shortened(reason, _WIDTH)


async def show_approval(target: Target, approval_id: str, output: Format, *, subject: bool) -> None:
    """Print one approval; with `subject` also the canonical JSON under its digest."""
    async with connect(target) as gateway:
        approval = await get(gateway, approval_id)
    if output is Format.TEXT:
        show(approval, subject=subject)
    else:
        emit(as_json(approval), output)


async def approve(
    target: Target,
    approval_id: str,
    digest: str,
    reason: str,
    output: Format,
    *,
    always: "Always | None" = None,
) -> None:
    """Approve what was shown before under `digest`, or what is shown now; with `always` also calls like it.

    Raises:
        Failure: The human at the terminal did not confirm, or the gateway refused the answer.
    """
    async with connect(target) as gateway:
        if not digest:
            approval = await _read(gateway, approval_id)
            digest = approval.digest
            if approval.outcome:
                note(f"already {outcome_word(approval)}")
            elif output is Format.TEXT and interactive():
                ask(approval)
                await _require_yours(gateway, approval, always, target)
                if not await confirmed("Approve exactly this?" if always is None else _ALWAYS):
                    raise Failure("not approved", hint=f"tyrum approvals deny {approval_id}{flags(target)}")
            else:
                note(f"approving {digest}: {shortened(call_line(approval), _WIDTH)}")
        request = ResolveApprovalRequest(
            approval_id=approval_id, answer=ANSWER_APPROVE, digest=digest, reason=reason
        )
        if always is not None:
            always.put_into(request)
        answered = await (
            resolve(gateway, request) if always is None else _for_good(gateway, request, target)
        )
        _print(answered, output, target)


async def _read(gateway: Gateway, approval_id: str) -> Approval:
    """Read an approval to answer it: reading asks for other roles than answering does."""
    try:
        return await get(gateway, approval_id)
    except grpc.aio.AioRpcError as error:
        if (reason := reason_of(error)) != "ROLE_REQUIRED":
            raise
        raise from_reason(reason, "answering needs the role `approver`") from error


async def _for_good(gateway: Gateway, request: ResolveApprovalRequest, target: Target) -> Approval:
    try:
        return await resolve(gateway, request)
    except grpc.aio.AioRpcError as error:
        if reason_of(error) == "ROLE_REQUIRED":
            await _require_operator(gateway, request.approval_id, target)
        raise


async def _require_operator(gateway: Gateway, approval_id: str, target: Target) -> None:
    """Say to an approver who may not permit for good what they can do instead."""
    me = await gateway.identity.WhoAmI(WhoAmIRequest(), metadata=gateway.metadata, timeout=DEADLINE)
    if ROLE_APPROVER in me.principal.roles and ROLE_OPERATOR not in me.principal.roles:
        raise Failure(
            "permitting for good needs the role `operator` besides",
            hint="approve it this once, without --always; or somebody with the roles approver and operator: "
            f"tyrum approvals approve {approval_id} --always{flags(target, caller=False)}",
            code=ExitCode.NOT_AUTHORIZED,
        )


async def _require_yours(
    gateway: Gateway, approval: Approval, always: "Always | None", target: Target
) -> None:
    """Ask nobody for an answer that would be refused."""
    if approval.approve_barred:
        hint = (
            "somebody else with the role approver: "
            f"tyrum approvals approve {approval.approval_id}{flags(target, caller=False)}"
        )
        raise Failure(approval.approve_barred, hint=hint, code=ExitCode.NOT_AUTHORIZED)
    if always is None or not approval.always_barred:
        return
    await _require_operator(gateway, approval.approval_id, target)
    if always.argv is None:
        raise Failure(approval.always_barred, hint="approve it once: without --always")


async def watch(target: Callable[[], Target], conversation_id: str, output: Format) -> None:
    """Print what waits, then what is asked and resolved, until the user ends it."""
    request = WatchApprovalsRequest(conversation_id=conversation_id)

    def stream(gateway: Gateway) -> AsyncIterable[WatchApprovalsResponse]:
        return gateway.approvals.WatchApprovals(request, metadata=gateway.metadata)

    async with aclosing(resilient(target, stream)) as items:
        async for item in items:
            if output is not Format.TEXT:
                emit(as_json(item), Format.JSONL)
            elif item.HasField("approval"):
                _line(item.approval)
            else:
                note("watching; Ctrl-C ends this and resolves nothing")


def _line(approval: Approval) -> None:
    by = f" by {resolver(approval)}" if approval.resolved_by else ""
    until = "" if approval.outcome else f", until {moment(approval.expires_at)}"
    what = shortened(call_line(approval), _WIDTH)
    state = f"{outcome_word(approval)}{by}, for {requester(approval)}{until}"
    say(f"{approval.approval_id}  {state}  {what}")


async def deny(target: Target, approval_id: str, reason: str, output: Format) -> None:
    """Deny an approval."""
    async with connect(target) as gateway:
        request = ResolveApprovalRequest(approval_id=approval_id, answer=ANSWER_DENY, reason=reason)
        _print(await resolve(gateway, request), output, target)


def _print(approval: Approval, output: Format, target: Target) -> None:
    if output is Format.TEXT:
        by = f" by {resolver(approval)}" if approval.resolved_by else ""
        say(f"{approval.approval_id} {outcome_word(approval)}{by}")
        if approval.override_id:
            note(
                "calls like it are permitted until it ends (tyrum policy overrides list); to end it now: "
                f"tyrum policy overrides revoke {approval.override_id}{flags(target)}"
            )
    else:
        emit(as_json(approval), output)
