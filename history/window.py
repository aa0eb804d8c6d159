"""The days that are kept: from retention's start to a little ahead, always UTC."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

EPOCH = date(1970, 1, 1)
MICROSECONDS_PER_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Window:
    """The UTC days, both ends included, of which versions are stored."""

    oldest: date
    newest: date

    @classmethod
    def at(cls, now: datetime, retention_days: int, ahead_days: int) -> Window:
        """The window at a moment (which has an offset). Every version younger than
        retention_days is inside: the oldest day is kept until its last moment is old enough."""
        today = now.astimezone(UTC).date()
        return cls(today - timedelta(days=retention_days), today + timedelta(days=ahead_days))

    def days(self) -> Iterator[date]:
        """Every day of the window, oldest first."""
        for number in range((self.newest - self.oldest).days + 1):
            yield self.oldest + timedelta(days=number)

    @property
    def start(self) -> int:
        """First moment inside, microseconds since the epoch."""
        return (self.oldest - EPOCH).days * MICROSECONDS_PER_DAY

    @property
    def end(self) -> int:
        """First moment after, microseconds since the epoch."""
        return ((self.newest - EPOCH).days + 1) * MICROSECONDS_PER_DAY


def day_of(microseconds: int) -> date:
    """The UTC day of a moment given in microseconds since the epoch."""
    return EPOCH + timedelta(days=microseconds // MICROSECONDS_PER_DAY)
