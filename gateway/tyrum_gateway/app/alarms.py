"""Alarms: what an operator has to mend before the gateway counts as ready again.

Invariant: an alarm is logged when it is raised and when it ends, counted each time its cause is met, and
named by `/readyz` in between, in words of our own: neither text of a user nor a path.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from tyrum_gateway.domain.errors import Damaged, DiskFull, TyrumError

log = structlog.get_logger(__name__)


class Alarm(StrEnum):
    """What can be wrong."""

    DATABASE_DAMAGED = "database_damaged"
    """Something stored cannot be read. It stays until the gateway is started on a mended database."""
    DISK_FULL = "disk_full"
    """A write was refused for want of room. It ends when there is room again."""
    AUDIT_HEADS = "audit_heads"
    """Signed heads cannot be kept, or were taken away. It ends when one could be kept again."""


MEANINGS: Mapping[Alarm, str] = {
    Alarm.DATABASE_DAMAGED: "database: holds damaged data, the log says which",
    Alarm.DISK_FULL: "disk: full",
    Alarm.AUDIT_HEADS: "audit: signed heads cannot be kept, the log says why",
}
"""What `/readyz` says."""


@dataclass(slots=True)
class Alarms:
    """The alarms of one gateway."""

    _active: dict[Alarm, None] = field(default_factory=dict, init=False)
    _counts: dict[Alarm, int] = field(default_factory=lambda: dict.fromkeys(Alarm, 0), init=False)

    def noticed(self, error: BaseException) -> None:
        """Raise the alarm that an error stands for; most stand for none."""
        match error:
            case Damaged():
                self.raised(Alarm.DATABASE_DAMAGED, error)
            case DiskFull():
                self.raised(Alarm.DISK_FULL, error)
            case _:
                pass

    def raised(self, alarm: Alarm, why: Exception) -> None:
        """Note that the cause of an alarm was met."""
        self._counts[alarm] += 1
        if alarm in self._active:
            return
        self._active[alarm] = None
        context = why.context if isinstance(why, TyrumError) else {}
        log.error("alarm_raised", alarm=alarm.value, reason=str(why), **context)

    def ended(self, alarm: Alarm) -> None:
        """Note that the cause is gone."""
        if alarm in self._active:
            del self._active[alarm]
            log.warning("alarm_ended", alarm=alarm.value)

    def active(self, alarm: Alarm) -> bool:
        """Tell whether an alarm was raised and has not ended."""
        return alarm in self._active

    @property
    def problems(self) -> list[str]:
        """Say what is wrong now."""
        return [MEANINGS[alarm] for alarm in self._active]

    @property
    def counts(self) -> Mapping[Alarm, int]:
        """How often the cause of each alarm was met."""
        return dict(self._counts)
