"""What a message of the soak asks for: its text says what the model does, so no script can be out of step."""

import json
import random
from dataclasses import asdict, dataclass

ALLOWED, ASKED, BARRED = "mark", "mark-asking", "mark-barred"
"""Programs: one that a rule allows, one that no rule matches, one that a rule denies. Each appends its first
argument to the file `ran` and then lives for its second, in seconds."""


@dataclass(frozen=True, slots=True)
class Command:
    """One tool call of a turn."""

    mark: str
    """Appended to `ran` by the command itself; unique."""
    program: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """One message."""

    name: str
    """Unique; the request id too."""
    delay: float
    """Seconds for which the model generates each step."""
    commands: tuple[Command, ...]

    def text(self) -> str:
        """Write it as the message."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> "Plan":
        """Read it back."""
        value = json.loads(text)
        return cls(value["name"], value["delay"], tuple(Command(**item) for item in value["commands"]))


def draw(name: str, chance: random.Random) -> Plan:
    """Draw what a message asks for."""
    commands = tuple(
        Command(
            f"{name}.{place}",
            chance.choices((ALLOWED, ASKED, BARRED), (6, 4, 1))[0],
            chance.choice((0, 0, 0.05, 0.2)),
        )
        for place in range(chance.choices((0, 1, 2, 3), (1, 6, 3, 1))[0])
    )
    return Plan(name, chance.choice((0, 0.01, 0.05, 0.15)), commands)
