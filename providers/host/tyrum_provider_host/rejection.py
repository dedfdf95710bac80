"""The stages of admission in their order, and what a refusal says.

Invariant: a refusal names the stage, both values where two values differ, and who should act.
"""

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

OPERATOR = "operator"
AUTHOR = "provider author"


SHORTAGES = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT})
"""What the machine lacked; it says nothing about what was tried, and passes when others let go."""


class Stage(StrEnum):
    """Stages in the order in which they are passed."""

    ARTIFACT = "artifact"
    SPAWN = "spawn"
    LISTEN = "listen"
    PEER = "peer"
    HANDSHAKE = "handshake"
    CONTRACT = "contract"
    BEARER = "bearer"
    DESCRIPTOR = "descriptor"
    TRUST = "trust"
    IMPLEMENTATION = "implementation"
    SECRETS = "secrets"
    CONFIG = "config"
    CONFIGURE = "configure"
    PROBE = "probe"
    CAPABILITY = "capability"
    SERVICE = "service"
    POSTURE = "posture"
    HEALTH = "health"


@dataclass(frozen=True, slots=True)
class StageResult:
    """One stage as it went."""

    stage: Stage
    passed: bool
    detail: str


class Rejected(Exception):
    """Admission refuses an instance.

    Attributes:
        stage: Where.
        problem: What is wrong.
        expected: The value that was needed, when two values differ.
        found: The value that was there instead.
        action: Who should do what.
        transient: Whether the same build with the same configuration could pass later.
        passes: Whether the cause passes without anybody's doing, so that the first start is tried again too.
    """

    def __init__(
        self,
        stage: Stage,
        problem: str,
        *,
        action: str,
        expected: str | None = None,
        found: str | None = None,
        transient: bool = False,
        passes: bool = False,
    ) -> None:
        values = "" if expected is None else f": expected {expected}, found {found or 'nothing'}"
        self.text = f"{problem}{values}. {action}"
        super().__init__(f"{stage}: {self.text}")
        self.stage, self.problem, self.expected, self.found = stage, problem, expected, found
        self.action, self.transient, self.passes = action, transient or passes, passes


def listed(names: Iterable[object]) -> str:
    """List names in order for a message; `none` when there are none."""
    return ", ".join(sorted(map(str, names))) or "none"
