"""A tool without effect, so that a turn's own cost can be measured; composed for benchmarks only."""

from tyrum_gateway.domain.approval import Subject
from tyrum_gateway.domain.canonical import canonical_json
from tyrum_gateway.domain.model import ToolSchema
from tyrum_gateway.domain.policy import Effect, Target
from tyrum_gateway.domain.states import CallState
from tyrum_gateway.domain.tool import Execution, Prepared, Rejected, ToolResult

NAME = "bench.noop"


class NoopTool:
    """Succeeds at once."""

    schema = ToolSchema(
        NAME,
        "Does nothing.",
        {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
    )

    def available(self) -> bool:
        """Always."""
        return True

    async def prepare(self, arguments: str) -> Prepared | Rejected:
        """Accept any arguments."""
        subject = Subject(canonical_json({"arguments": arguments}), "nothing")
        return Prepared(NAME, Target(NAME, Effect.READ_ONLY), lambda: subject, candidate=None, run=None)

    async def execute(self, prepared: Prepared, execution: Execution) -> ToolResult:
        """Do nothing."""
        del prepared, execution
        return ToolResult(CallState.SUCCEEDED, "done")

    async def settle(self, execution: Execution) -> ToolResult:
        """Nothing was done."""
        del execution
        return ToolResult(CallState.SUCCEEDED, "done")

    async def stop(self, execution: Execution) -> None:
        """Nothing to stop."""

    async def release(self, execution: Execution) -> None:
        """Nothing to release."""
