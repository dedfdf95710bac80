"""Time and randomness of the real world, and what the machine may keep of this process."""

import resource
import secrets
import time
from datetime import UTC, datetime
from typing import TypeVar

from tyrum_gateway.domain.ids import EntityId

Id = TypeVar("Id", bound=EntityId)


def forbid_core_dumps() -> None:
    """Leave no core of this process or of any that it starts: it would hold every secret that was in use."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.now(UTC)


class RandomIds:
    """Identifiers that sort by time and cannot be guessed."""

    def new(self, kind: type[Id]) -> Id:
        """Make a fresh identifier."""
        return kind.build(time.time_ns() // 1_000_000, secrets.token_bytes(10))
