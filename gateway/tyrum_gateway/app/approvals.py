"""The approvals desk: a human's answer, or the lack of one, becomes one commit with the turn's transition."""

import asyncio

import structlog

from tyrum_gateway.app.agent import EngineLimits
from tyrum_gateway.app.engine import Engine
from tyrum_gateway.domain.approval import Approval, Outcome, answer, close
from tyrum_gateway.domain.errors import KernelBug, TyrumError, VersionConflict
from tyrum_gateway.domain.ids import ApprovalId
from tyrum_gateway.domain.ports import Clock, Store
from tyrum_gateway.domain.principal import Principal
from tyrum_gateway.domain.turn_events import ApprovalAnswered

log = structlog.get_logger(__name__)

LONGEST_SLEEP = 60.0
"""Seconds after which expiry is looked up again, so that a clock that jumps is noticed."""

ROUNDS = 16
"""How often an answer is computed again before it is reported as a bug."""

_PAUSE = 1.0


class ApprovalDesk:
    """Resolves approvals, once each."""

    def __init__(self, *, store: Store, clock: Clock, engine: Engine, limits: EngineLimits) -> None:
        self._store = store
        self._clock = clock
        self._engine = engine
        # No question that is asked while the look-up sleeps expires before it is over.
        self._longest = min(LONGEST_SLEEP, limits.approval_expiry.total_seconds())

    async def resolve(
        self, principal: Principal, approval_id: ApprovalId, *, approve: bool, digest: str, reason: str
    ) -> Approval:
        """Record a human's answer and let the turn go on.

        Raises:
            NotFound: There is no such approval.
            AlreadyResolved: Another outcome stands.
            VersionConflict: The digest is not that of the approval.
        """
        for _ in range(ROUNDS):
            approval = await self._store.approval(approval_id)
            answered = answer(
                approval,
                approve=approve,
                digest=digest,
                reason=reason,
                principal=principal,
                now=self._clock.now(),
            )
            if answered is approval:
                return approval
            if await self._settle(answered):
                return answered
        raise KernelBug("an open approval takes no answer", approval=approval_id)

    async def expire(self) -> None:
        """Deny approvals whose time is over, for as long as the gateway runs."""
        while True:
            try:
                pause = await self._expire_due()
            except TyrumError as error:
                log.warning("expiry_failed", reason=error.public, **error.context)
                pause = _PAUSE
            await asyncio.sleep(pause)

    async def _expire_due(self) -> float:
        """Deny what is due; return for how many seconds nothing will be."""
        now = self._clock.now()
        for approval in await self._store.expired(now, 100):
            await self._settle(close(approval, Outcome.EXPIRED, now, "nobody answered in time"))
        due = await self._store.next_expiry()
        left = self._longest if due is None else (due - self._clock.now()).total_seconds()
        return min(max(left, 0.05), self._longest)

    async def _settle(self, resolved: Approval) -> bool:
        """Commit a resolution; False when somebody else was faster."""
        turn = (await self._store.turn(resolved.turn_id)).turn
        try:
            stored, effects = await self._engine.turns.apply(
                turn, ApprovalAnswered(resolved), resolved=(resolved,)
            )
        except VersionConflict:
            return False
        if not effects:
            return False
        log.info(
            "approval_resolved",
            approval=resolved.approval_id,
            outcome=resolved.resolution.outcome if resolved.resolution else "",
        )
        self._engine.wake(stored.conversation_id)
        return True
