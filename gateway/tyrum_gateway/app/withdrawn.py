"""A tool that left the configuration while calls of it were on record."""

from tyrum_gateway.domain.model import ToolSchema
from tyrum_gateway.domain.states import CallState
from tyrum_gateway.domain.tool import Execution, Prepared, Rejected, ToolResult

_GONE = "the tool is no longer configured"


class Withdrawn:
    """Settles what can be settled without the tool: begun calls have an unknown outcome, others never run."""

    schema = ToolSchema("withdrawn", _GONE, {})

    def available(self) -> bool:
        """Never."""
        return False

    async def prepare(self, arguments: str) -> Prepared | Rejected:
        """Reject every call."""
        del arguments
        return Rejected(_GONE)

    async def execute(self, prepared: Prepared, execution: Execution) -> ToolResult:
        """Refuse: nothing can have been prepared."""
        del prepared, execution
        return ToolResult(CallState.FAILED, _GONE)

    async def settle(self, execution: Execution) -> ToolResult:
        """Say honestly that nobody can be asked."""
        del execution
        return ToolResult(CallState.OUTCOME_UNKNOWN, f"{_GONE}: nobody can tell whether the call ran")

    async def stop(self, execution: Execution) -> None:
        """Do nothing."""

    async def release(self, execution: Execution) -> None:
        """Do nothing."""
