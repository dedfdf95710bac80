"""Tools as the kernel sees them: a schema for the model, a target for policy, a subject for approval.

Preparing a call has no effect; executing it happens only under a committed operation. A tool never decides.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tyrum_gateway.domain.approval import Subject
from tyrum_gateway.domain.binding import Candidate
from tyrum_gateway.domain.ids import BindingId, OperationId, PrincipalId, ProcessId
from tyrum_gateway.domain.model import ToolSchema
from tyrum_gateway.domain.policy import Target
from tyrum_gateway.domain.process import ProcessResult, ProcessRun
from tyrum_gateway.domain.states import CallState


@dataclass(frozen=True, slots=True)
class Prepared:
    """A valid call, resolved as far as can be without an effect."""

    tool: str
    target: Target
    about: Callable[[], Subject]
    """Writes down what would be asked: most calls are decided without a question."""
    candidate: Candidate | None
    """The provider that would be bound; None for tools without one."""
    run: ProcessRun | None
    """What would run; None for tools that run no process."""

    @property
    def subject(self) -> Subject:
        """What would be asked."""
        return self.about()


@dataclass(frozen=True, slots=True)
class Rejected:
    """An invalid call: told to the model, never shown to policy."""

    problem: str


@dataclass(frozen=True, slots=True)
class Execution:
    """The committed names under which a call executes."""

    operation_id: OperationId
    process_id: ProcessId | None
    binding_id: BindingId | None
    candidate: Candidate | None
    principal_id: PrincipalId


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a call ended."""

    state: CallState
    """SUCCEEDED, FAILED or OUTCOME_UNKNOWN."""
    content: str
    """What the model gets, bounded by the tool."""
    process: ProcessResult | None = None
    subject_changed: bool = False
    """True when nothing ran because what would run is no longer what was decided on."""


class Tool(Protocol):
    """One tool."""

    @property
    def schema(self) -> ToolSchema:
        """What the model is told."""
        ...

    def available(self) -> bool:
        """Tell whether the tool's binding is capable now; otherwise no step is shown the tool."""
        ...

    async def prepare(self, arguments: str) -> Prepared | Rejected:
        """Check and resolve a call, without effect.

        Raises:
            ProviderUnavailable: The selected provider is not admitted now.
        """
        ...

    async def execute(self, prepared: Prepared, execution: Execution) -> ToolResult:
        """Perform the call once, under a committed operation."""
        ...

    async def settle(self, execution: Execution) -> ToolResult:
        """Learn what became of a call that was begun before a crash, without repeating it."""
        ...

    async def stop(self, execution: Execution) -> None:
        """End the process of a cancelled call; an error is logged and changes nothing."""
        ...

    async def release(self, execution: Execution) -> None:
        """Let the provider forget a settled call; called after the commit, an error is logged."""
        ...
