"""The states of turns and tool calls, and which of them are final."""

from enum import StrEnum


class TurnState(StrEnum):
    """State of a turn."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING_APPROVAL = "waiting_approval"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether the turn rests for ever."""
        return self in _FINAL_TURNS


class CallState(StrEnum):
    """State of a tool call."""

    PROPOSED = "proposed"
    AWAITING_APPROVAL = "awaiting_approval"
    PERMITTED = "permitted"
    EXECUTING = "executing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DENIED = "denied"
    CANCELLED = "cancelled"
    OUTCOME_UNKNOWN = "outcome_unknown"

    @property
    def final(self) -> bool:
        """Whether the call rests for ever."""
        return self in _FINAL_CALLS


_FINAL_TURNS = frozenset({TurnState.COMPLETED, TurnState.FAILED, TurnState.CANCELLED})
_FINAL_CALLS = frozenset(
    {
        CallState.SUCCEEDED,
        CallState.FAILED,
        CallState.DENIED,
        CallState.CANCELLED,
        CallState.OUTCOME_UNKNOWN,
    }
)
