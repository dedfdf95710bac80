"""The agent that serves conversations, fixed by the operator's configuration until the next start."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from tyrum_gateway.domain.model import Model, ToolSchema
from tyrum_gateway.domain.policy import Bundle, bars
from tyrum_gateway.domain.tool import Tool
from tyrum_gateway.domain.turn import TurnLimits


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Bounds the engine enforces."""

    turn: TurnLimits
    step_time: timedelta
    """For one attempt of the model."""
    turn_time: timedelta
    """For the work on a turn between two waits, whatever gateways do it."""
    approval_expiry: timedelta
    queued_per_conversation: int
    """Unfinished turns a conversation may have."""
    unfinished_per_principal: int
    """Unfinished turns a principal may have in all conversations, those that wait for approval included."""
    concurrent_turns: int
    """Turns worked on at the same time; waiting turns do not count."""
    daily_tokens_per_principal: int | None = None
    """Reported tokens of a principal in a day (UTC), after which no model is asked; None: no bound."""


@dataclass(frozen=True, slots=True)
class Agent:
    """Model, policy and tools of one agent."""

    instructions: str
    model: Model
    policy: Bundle
    tools: Mapping[str, Tool]
    name: str = "default"
    model_name: str = ""
    """Name of the model, where it does not say itself which of several answered."""

    def exposed(self) -> list[ToolSchema]:
        """Tools shown to a step: configured, not denied outright, and with a binding that is capable now."""
        return [
            tool.schema
            for tool in self.tools.values()
            if tool.available() and not bars(self.policy, tool.schema.tool, tool.schema.effect, self.name)
        ]
