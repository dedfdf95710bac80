"""A permission that is revoked while a step is decided permits nothing of that step; on a real database."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from tests.storage.builders import PRINCIPAL, asked, finish, message, new, now
from tyrum_gateway.app.agent import Agent, EngineLimits
from tyrum_gateway.app.engine import Engine
from tyrum_gateway.app.overrides import Overrides
from tyrum_gateway.app.streams import Streams
from tyrum_gateway.bootstrap.system import RandomIds, SystemClock
from tyrum_gateway.domain.approval import Outcome, Resolution, Subject
from tyrum_gateway.domain.ids import OverrideId
from tyrum_gateway.domain.model import ToolSchema
from tyrum_gateway.domain.override import Override, Wish, permit
from tyrum_gateway.domain.policy import Bundle, Decision, Effect, Target
from tyrum_gateway.domain.principal import Principal
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.tool import Execution, Prepared, ToolResult
from tyrum_gateway.domain.transcript import ApprovalRequested, ToolCallDecided, ToolCallStarted
from tyrum_gateway.domain.turn import TurnLimits
from tyrum_gateway.models.catalog import Scripted, build_model
from tyrum_gateway.storage import SqliteStore

SCRIPT = """\
version: 1
scenarios:
  - user: quiet
    steps:
      - calls: [{tool: touch, arguments: {argv: [touch, a]}}]
      - deltas: ["Done."]
  - user: {prefix: ""}
    steps:
      - calls:
          - {tool: touch, arguments: {argv: [touch, a]}}
          - {tool: touch, arguments: {argv: [touch, b]}}
      - deltas: ["Done."]
"""
LIMITS = EngineLimits(
    turn=TurnLimits(steps=4, attempts=2),
    step_time=timedelta(seconds=30),
    turn_time=timedelta(seconds=30),
    approval_expiry=timedelta(hours=1),
    queued_per_conversation=4,
    unfinished_per_principal=256,
    concurrent_turns=4,
)


def target(*argv: str) -> Target:
    """What a call would do."""
    return Target("touch", Effect.STATE_CHANGING, "/usr/bin/touch", argv=argv)


class Touch:
    """A tool that does nothing, and meets a revocation while it prepares a call with the argument `b`."""

    schema = ToolSchema("touch", "", {})

    def __init__(self, overrides: Overrides, override: OverrideId) -> None:
        self._overrides = overrides
        self._override = override
        self.executed = 0

    def available(self) -> bool:
        """Always."""
        return True

    async def prepare(self, arguments: str) -> Prepared:
        """Resolve a call; another human may do something meanwhile."""
        argv = tuple(json.loads(arguments)["argv"])
        if "b" in argv:
            somebody = Principal(PRINCIPAL, "B", frozenset(), "token")
            await self._overrides.revoke(somebody, self._override, "")
        return Prepared("touch", target(*argv), lambda: Subject(json.dumps(argv), "touch"), None, None)

    async def execute(self, prepared: Prepared, execution: Execution) -> ToolResult:
        """Count."""
        del prepared, execution
        self.executed += 1
        return ToolResult(CallState.SUCCEEDED, "touched")

    async def settle(self, execution: Execution) -> ToolResult:
        """Nothing is ever left behind."""
        del execution
        return ToolResult(CallState.OUTCOME_UNKNOWN, "")

    async def stop(self, execution: Execution) -> None:
        """Nothing runs."""

    async def release(self, execution: Execution) -> None:
        """Nothing is kept."""


async def permitted(store: SqliteStore) -> Override:
    """Permit `touch a` for good."""
    turn, approval = await asked(store)
    override_id = new(OverrideId)
    resolution = Resolution(Outcome.APPROVED, now(), PRINCIPAL, "A", "token", override_id=override_id)
    answered = replace(
        approval,
        target=target("touch", "a").describe(),
        subject=Subject('{"workspace":{"path":"/work"}}', "touch a"),
        resolution=resolution,
    )
    override = permit(answered, Wish())
    await store.commit(replace(finish(turn), resolved=(answered,), overrides=(override,)))
    return override


async def test_what_is_revoked_while_its_step_is_decided_does_not_begin(tmp_path: Path) -> None:
    """A call that was judged before the revocation and would begin after it is asked about and never ran."""
    (tmp_path / "script.yaml").write_text(SCRIPT, encoding="utf-8")
    async with await SqliteStore.open(tmp_path / "state" / "tyrum.db") as store:
        override = await permitted(store)
        clock = SystemClock()
        overrides = Overrides(store=store.overrides, clock=clock)
        tool = Touch(overrides, override.override_id)
        engine = Engine(
            agent=Agent(
                "", build_model(Scripted(tmp_path / "script.yaml")), Bundle("default", ()), {"touch": tool}
            ),
            store=store,
            clock=clock,
            ids=RandomIds(),
            streams=Streams(),
            limits=LIMITS,
            permissions=overrides,
        )
        started, stopping = asyncio.Event(), asyncio.Event()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(engine.run(started, stopping))
            await started.wait()
            for text, rests_in in (("quiet", TurnState.COMPLETED), ("go", TurnState.WAITING_APPROVAL)):
                turn = (await store.accept(message(text=text))).turn
                engine.wake(turn)
                while (await store.turn(turn.turn_id)).turn.state is not rests_in:  # noqa: ASYNC110 - rows
                    await asyncio.sleep(0.01)
            stopping.set()
        assert tool.executed == 1, "the override permitted the first turn's call, and no other"
        payloads = [event.payload for event in await store.events(turn.conversation_id, 0, 50)]
        decided = [item for item in payloads if isinstance(item, ToolCallDecided)]
        assert [item.decision for item in decided] == [Decision.ALLOW, Decision.REQUIRE_APPROVAL]
        assert decided[0].rule_id == override.override_id
        asked_about = {item.call_id for item in payloads if isinstance(item, ApprovalRequested)}
        assert asked_about == {item.call_id for item in decided}
        assert not [item for item in payloads if isinstance(item, ToolCallStarted)]
