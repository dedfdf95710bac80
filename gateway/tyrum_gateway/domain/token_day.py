"""Tokens of a principal on one day, and when they are used up."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from tyrum_gateway.domain.errors import TokensSpent
from tyrum_gateway.domain.ids import PrincipalId
from tyrum_gateway.domain.usage import NOTHING


@dataclass(frozen=True, slots=True)
class TokenDay:
    """What models reported that a principal's turns used on a day."""

    principal_id: PrincipalId
    day: date
    """In UTC."""
    used: int
    """Tokens read and written together, >= 0."""

    def require(self, limit: int) -> None:
        """Check that a model may be asked: something of the day's tokens is left.

        Raises:
            TokensSpent: Nothing is.
        """
        if self.used < limit:
            return
        renewed = self.day + timedelta(days=1)
        raise TokensSpent(
            f"no tokens are left today: {self.used:,} of {limit:,} are used "
            f"(`limits.daily_tokens_per_principal`); there are new ones from {renewed} 00:00 UTC on",
            retryable=False,
            usage=NOTHING,
        )


def day_of(moment: datetime) -> date:
    """Tell the day in UTC."""
    return moment.astimezone(UTC).date()
