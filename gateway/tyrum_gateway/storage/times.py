"""Time as the tables hold it: microseconds since 1970 in UTC, so that order needs no parsing."""

from datetime import UTC, date, datetime, timedelta

from tyrum_gateway.domain.errors import Damaged

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_microseconds(moment: datetime) -> int:
    """Write a moment.

    Raises:
        TypeError: The moment has no time zone.
    """
    return (moment - _EPOCH) // _MICROSECOND


def to_days(day: date) -> int:
    """Write a day: how many it is after 1970-01-01."""
    return (day - _EPOCH.date()).days


def from_microseconds(count: int) -> datetime:
    """Read a moment.

    Raises:
        Damaged: No calendar has it.
    """
    try:
        return _EPOCH + count * _MICROSECOND
    except OverflowError as error:
        raise Damaged(f"the database holds {count} as a time") from error
