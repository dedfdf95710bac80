"""Isolation as `process.run` needs it: who would run a command, and what became of one that was handed over.

Invariant: an answer says what is proved. `Refused` means the command did not execute and never will;
whatever is not proved is `Unknown` and is never repeated under another id.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tyrum_gateway.domain.binding import Candidate
from tyrum_gateway.domain.process import ProcessRun, Ran, Refused, Unknown
from tyrum_gateway.domain.tool import Execution

PROGRAM_CHANGED = "PROGRAM_CHANGED"
WORKSPACE_CHANGED = "WORKSPACE_CHANGED"
NEVER_STARTED = "NEVER_STARTED"
"""Reason of a refusal that the provider's journal proves."""
UNAVAILABLE = "BINDING_UNAVAILABLE"
"""Reason of a refusal before any call: the provider was not admitted."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """The posture in force, as people need to know it before they approve."""

    run_uid: int
    user: str
    """Name of the user commands run as, or its number."""
    shares_gateway_user: bool

    def describe(self) -> str:
        """Say in one line whose power a command has."""
        if self.shares_gateway_user:
            return f"runs as the gateway's user {self.user} and can do what that user can"
        return f"runs as the user {self.user}"


@dataclass(frozen=True, slots=True)
class Running:
    """The command runs, or may run."""


RunAnswer = Running | Ran | Refused | Unknown
"""What the provider says of a run now."""


class Isolation(Protocol):
    """One isolation profile of the operator, served by exactly one provider."""

    def candidate(self) -> Candidate:
        """Return what would be bound now.

        Raises:
            ProviderUnavailable: The provider is not admitted, or a required claim is not PROVED.
        """
        ...

    def boundary(self) -> Boundary:
        """Return the posture in force.

        Raises:
            ProviderUnavailable: The provider is not admitted.
        """
        ...

    async def start(self, execution: Execution, run: ProcessRun, secrets: Mapping[str, str]) -> RunAnswer:
        """Start the command under the execution's ids; a short one may have ended. Bounded by 32 s.

        While the provider is at its limit a start waits in line for a place, as long as its caller lets it.
        What is unclear is resolved from the journal, which may take as long as `resolve` on top.
        """
        ...

    async def wait(self, execution: Execution, timeout: float) -> RunAnswer:
        """Wait for the end, at most `timeout` seconds; what is unclear is resolved, as by `resolve`."""
        ...

    async def resolve(self, execution: Execution) -> RunAnswer:
        """Ask the journal; an operation that has not begun never will. Bounded by 30 s.

        A provider that died is waited for: the journal of its next instance tells.
        """
        ...

    async def cancel(self, execution: Execution) -> None:
        """End the command tree, best effort, bounded by 60 s; failures are logged."""
        ...

    async def release(self, execution: Execution) -> None:
        """Let the provider forget an ended run, best effort, bounded by 10 s; failures are logged."""
        ...
