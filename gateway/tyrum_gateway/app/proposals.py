"""Proposals: what the model asked for, checked, resolved, decided, and turned into questions.

Invariant: a call reaches policy only as the target a tool resolved; a call that is invalid, or whose tool is
not shown, never reaches policy at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tyrum_gateway.app.agent import Agent, EngineLimits
from tyrum_gateway.app.past import Pasts
from tyrum_gateway.domain.approval import Approval, Receipt, receipt
from tyrum_gateway.domain.errors import KernelBug, ProviderUnavailable
from tyrum_gateway.domain.ids import ApprovalId, CallId, OverrideId
from tyrum_gateway.domain.model import CallRequest
from tyrum_gateway.domain.policy import Decision, Override, Provenance, Target, Verdict, evaluate
from tyrum_gateway.domain.ports import Clock, Ids
from tyrum_gateway.domain.tool import Prepared, Rejected
from tyrum_gateway.domain.turn import Call, Turn
from tyrum_gateway.domain.turn_events import ProposedCall


@dataclass(frozen=True, slots=True)
class Ready:
    """A call that may begin now, as resolved now."""

    prepared: Prepared
    verdict: Verdict
    relies_on: tuple[OverrideId, ...] = ()
    """Standing permissions that must still hold when the call begins."""


@dataclass(frozen=True, slots=True)
class AskAgain:
    """What was decided on no longer holds, and policy asks about what would run now."""

    superseded: Approval | None
    approval: Approval
    reason: str = "what would run is no longer what was approved"


@dataclass(frozen=True, slots=True)
class Barred:
    """The call cannot begin, with proof that nothing ran."""

    denied: bool
    content: str


Launch = Ready | AskAgain | Barred
"""What the last check before an operation says."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The calls of one step."""

    calls: tuple[ProposedCall, ...]
    ready: Mapping[CallId, Ready]
    """The permitted ones; what begins in the commit of its own decision needs no second look."""


class Permissions(Protocol):
    """What humans permitted for good."""

    async def overrides(self, agent: str) -> tuple[Override, ...]:
        """Return what holds for an agent now: neither revoked nor over."""
        ...


class Proposals:
    """Turns model output into decided calls, and checks them again at launch."""

    def __init__(
        self,
        *,
        agent: Agent,
        clock: Clock,
        ids: Ids,
        limits: EngineLimits,
        pasts: Pasts,
        permissions: Permissions | None = None,
    ) -> None:
        self._agent = agent
        self._pasts = pasts
        self._permissions = permissions
        self._clock = clock
        self._ids = ids
        self._limits = limits

    async def decide(self, turn: Turn, requests: Sequence[CallRequest]) -> Decided:
        """Decide on all calls of a step, without effect."""
        decided = [await self._decide(turn, request) for request in requests]
        return Decided(
            tuple(call for call, _ in decided), {call.call_id: ready for call, ready in decided if ready}
        )

    async def launch(self, turn: Turn, call: Call, approved: Approval | None) -> Launch:
        """Check a permitted call once more, right before its operation begins.

        A deny always stands. An approval counts only for what was shown, and not for ever: the subject is
        resolved anew and compared by digest. A permission by rule or override counts only while one still
        permits.

        Raises:
            KernelBug: The call would begin on an approval that is none, or another call's.
        """
        prepared = await self._prepare(turn, call.tool, call.arguments)
        if isinstance(prepared, Rejected):
            return Barred(denied=False, content=f"not executed: {prepared.problem}")
        verdict, relies_on = await self._evaluate(prepared.target)
        if verdict.decision is Decision.DENY:
            return Barred(denied=True, content=f"denied by policy: {verdict.reason}")
        worth = None
        if approved is not None:
            worth = receipt(approved, call.call_id, prepared.subject, self._clock.now())
        if worth is Receipt.VALID:
            return Ready(prepared, verdict)
        if verdict.decision is Decision.ALLOW and worth is not Receipt.CHANGED:
            return Ready(prepared, verdict, relies_on)
        question = self._question(turn, call.call_id, prepared, verdict)
        if worth is Receipt.LAPSED:
            return AskAgain(approved, question, "the approval was given too long ago")
        return AskAgain(approved, question)

    def question_about(self, turn: Turn, call: Call, ready: Ready) -> Approval:
        """Ask about a call whose provider found that it changed after the last check."""
        return self._question(turn, call.call_id, ready.prepared, ready.verdict)

    async def _decide(self, turn: Turn, request: CallRequest) -> tuple[ProposedCall, Ready | None]:
        call_id = self._ids.new(CallId)
        prepared = await self._prepare(turn, request.tool, request.arguments)
        if isinstance(prepared, Rejected):
            return ProposedCall(call_id, request.tool, request.arguments, None, prepared.problem), None
        verdict, relies_on = await self._evaluate(prepared.target)
        proposed = ProposedCall(call_id, request.tool, request.arguments, verdict)
        if verdict.decision is Decision.REQUIRE_APPROVAL:
            return replace(proposed, approval=self._question(turn, call_id, prepared, verdict)), None
        permitted = verdict.decision is Decision.ALLOW
        return proposed, Ready(prepared, verdict, relies_on) if permitted else None

    async def _evaluate(self, target: Target) -> tuple[Verdict, tuple[OverrideId, ...]]:
        """Decide by rules, and by permissions only where rules would ask; tell which of those count."""
        verdict = evaluate(self._agent.policy, target)
        if verdict.decision is not Decision.REQUIRE_APPROVAL or self._permissions is None:
            return verdict, ()
        held = await self._permissions.overrides(self._agent.name)
        verdict = evaluate(self._agent.policy, target, held)
        named = verdict.rule_id.split(",")
        used = (item.override_id for item in held if item.override_id in named)
        return verdict, tuple(OverrideId(override_id) for override_id in used)

    async def _prepare(self, turn: Turn, tool_id: str, arguments: str) -> Prepared | Rejected:
        tool = self._agent.tools.get(tool_id)
        if tool is None:
            return Rejected(f"there is no tool `{tool_id[:64]}`")
        try:
            prepared = await tool.prepare(arguments)
        except ProviderUnavailable as unavailable:
            return Rejected(unavailable.public)
        if isinstance(prepared, Rejected):
            return prepared
        target = replace(prepared.target, agent=self._agent.name, provenance=await self._provenance(turn))
        return replace(prepared, target=target)

    async def _provenance(self, turn: Turn) -> Provenance:
        """Tell what the model had read when it proposed the calls of this step.

        Output of earlier turns stands in its prompt as well. What lies behind the window is not looked at,
        and counts as if tools had written it: text that was kept of it may rest on their output.
        """
        if turn.step > 1:
            return Provenance.UNTRUSTED
        window = await self._pasts.window(turn)
        read = any(past.used_tools for past in window.earlier)
        return Provenance.UNTRUSTED if read or not window.complete else Provenance.TRUSTED

    def _question(self, turn: Turn, call_id: CallId, prepared: Prepared, verdict: Verdict) -> Approval:
        subject = prepared.subject
        if not subject.json:
            raise KernelBug("a question needs a subject", call=call_id)
        now = self._clock.now()
        return Approval(
            approval_id=self._ids.new(ApprovalId),
            conversation_id=turn.conversation_id,
            turn_id=turn.turn_id,
            call_id=call_id,
            tool=prepared.tool,
            subject=subject,
            rule_id=verdict.rule_id,
            requested_by=turn.principal_id,
            created_at=now,
            expires_at=now + self._limits.approval_expiry,
            agent=self._agent.name,
            target=verdict.target,
        )
