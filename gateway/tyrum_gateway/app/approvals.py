"""The approvals desk: a human's answer, or the lack of one, becomes one commit with the turn's transition."""

import asyncio
from contextlib import nullcontext

import structlog

from tyrum_gateway.app.agent import EngineLimits
from tyrum_gateway.app.alarms import Alarms
from tyrum_gateway.app.engine import Engine
from tyrum_gateway.app.finishing import Finishing
from tyrum_gateway.app.overrides import Overrides
from tyrum_gateway.domain.answering import Bars, bars
from tyrum_gateway.domain.approval import Approval, Outcome, answer, close
from tyrum_gateway.domain.errors import KernelBug, NotAuthorized, TyrumError, VersionConflict
from tyrum_gateway.domain.ids import ApprovalId, OverrideId
from tyrum_gateway.domain.override import Override, Wish, permit
from tyrum_gateway.domain.ports import Clock, Ids, Store
from tyrum_gateway.domain.principal import Principal, Role
from tyrum_gateway.domain.turn_events import ApprovalAnswered

log = structlog.get_logger(__name__)

LONGEST_SLEEP = 60.0
"""Seconds after which expiry is looked up again, so that a clock that jumps is noticed."""

DUE = 256
"""Approvals whose time is over that are read at once."""

AT_ONCE = 16
"""Approvals that are denied at once: they share a transaction, and the loop gets to other work after them."""

ROUNDS = 16
"""How often an answer is computed again before it is reported as a bug."""

_PAUSE = 1.0
_SHORTEST_PAUSE = 0.05


class ApprovalDesk:
    """Resolves approvals, once each."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: Ids,
        engine: Engine,
        overrides: Overrides,
        limits: EngineLimits,
        requester_may_approve: bool,
        alarms: Alarms | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._engine = engine
        self._overrides = overrides
        self._requester_may_approve = requester_may_approve
        self._alarms = alarms or Alarms()
        self._finishing = Finishing()
        # No question that is asked while the look-up sleeps expires before it is over.
        self._longest = min(LONGEST_SLEEP, limits.approval_expiry.total_seconds())

    async def resolve(
        self,
        principal: Principal,
        approval_id: ApprovalId,
        *,
        approve: bool,
        digest: str,
        reason: str,
        always: Wish | None = None,
    ) -> Approval:
        """Record a human's answer and let the turn go on, also when the human goes away meanwhile.

        Args:
            principal: Who answers.
            approval_id: The question.
            approve: Whether the call may run.
            digest: Of what was shown.
            reason: Given by the human.
            always: With an approval: what to permit for good besides.

        Raises:
            NotFound: There is no such approval.
            NotAuthorized: Permitting for good is an operator's business.
            RequesterMayNotApprove: The principal asked for the call, and somebody else has to approve it.
            AlreadyResolved: Another outcome stands.
            VersionConflict: The digest is not that of the approval.
            OverrideNotDerivable: The call cannot be permitted for good; nothing is resolved.
            InvalidRequest: The pattern or the life of the permission is none; nothing is resolved.
        """
        if always is not None and Role.OPERATOR not in principal.roles:
            raise NotAuthorized("permitting for good needs the role `operator` besides", roles=Role.OPERATOR)
        for _ in range(ROUNDS):
            approval = await self._store.approval(approval_id)
            answered = answer(
                approval,
                approve=approve,
                digest=digest,
                reason=reason,
                principal=principal,
                now=self._clock.now(),
                override_id=self._ids.new(OverrideId) if always else None,
                requester_may_approve=self._requester_may_approve,
            )
            if answered is approval:
                return approval
            permitted = (permit(answered, always),) if always else ()
            if await self._finishing.run(self._settle(answered, permitted)):
                return answered
        raise KernelBug("an open approval takes no answer", approval=approval_id)

    def bars(self, principal: Principal, approval: Approval) -> Bars:
        """Tell what keeps a principal from answering."""
        return bars(approval, principal, requester_may_approve=self._requester_may_approve)

    async def expire(self) -> None:
        """Deny approvals whose time is over, for as long as the gateway runs."""
        while True:
            try:
                pause = await self._expire_due()
            except TyrumError as error:
                self._alarms.noticed(error)
                log.warning("expiry_failed", reason=error.public, **error.context)
                pause = _PAUSE
            except Exception:
                # What nobody foresaw about questions must not take the gateway down, at each of its starts.
                log.exception("expiry_broken")
                pause = _PAUSE
            await asyncio.sleep(pause)

    async def _expire_due(self) -> float:
        """Deny what is due; return for how many seconds nothing will be."""
        expired = await self._store.expired(self._clock.now(), DUE)
        calm = True
        while expired:
            room = min(await self._engine.room(), AT_ONCE)
            # Each is a commit of its own; those that are handed over together share a transaction.
            async with asyncio.TaskGroup() as group:
                denied = [group.create_task(self._expired(approval)) for approval in expired[:room]]
            calm = calm and all(task.result() for task in denied)
            expired = expired[room:]
        due = await self._store.next_expiry()
        left = self._longest if due is None else (due - self._clock.now()).total_seconds()
        return min(max(left, _SHORTEST_PAUSE if calm else _PAUSE), self._longest)

    async def _expired(self, approval: Approval) -> bool:
        """Deny an approval; False when it will be found again, or somebody was faster."""
        try:
            return await self._settle(
                close(approval, Outcome.EXPIRED, self._clock.now(), "nobody answered in time")
            )
        except TyrumError as error:
            self._alarms.noticed(error)
            # Not raised: it would cancel its neighbours between their commits and the wake-ups after them.
            log.warning("expiry_failed", reason=error.public, **error.context)
            return False
        except Exception:
            log.exception("expiry_broken", approval=approval.approval_id)
            return False

    async def _settle(self, resolved: Approval, permitted: tuple[Override, ...] = ()) -> bool:
        """Commit a resolution; False when somebody else was faster."""
        turn = (await self._store.turn(resolved.turn_id)).turn
        with self._overrides.changing() if permitted else nullcontext():
            try:
                stored, applied = await self._engine.turns.apply(
                    turn, ApprovalAnswered(resolved), resolved=(resolved,), overrides=permitted
                )
            except VersionConflict:
                return False
        if not applied:
            return False
        log.info(
            "approval_resolved",
            approval=resolved.approval_id,
            turn=resolved.turn_id,
            call=resolved.call_id,
            principal=resolved.resolution.principal_id if resolved.resolution else None,
            outcome=resolved.resolution.outcome if resolved.resolution else "",
        )
        self._engine.wake(stored)
        return True
