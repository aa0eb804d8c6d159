"""The days that are kept: from the start of retention to some days ahead, always UTC."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property

EPOCH = date(1970, 1, 1)
MICROSECONDS_PER_DAY = 86_400_000_000
_FIRST_DAY = (date.min - EPOCH).days


@dataclass(frozen=True)
class Window:
    """The UTC days from the start of retention to the last day ahead, both included."""

    oldest: date
    newest: date

    @cached_property
    def start(self) -> int:
        """The first moment of the oldest day, in microseconds since the epoch."""
        return _count_microseconds(self.oldest)

    @cached_property
    def end(self) -> int:
        """The first moment after the newest day, in microseconds since the epoch."""
        return _count_microseconds(self.newest + timedelta(days=1))

    @classmethod
    def at(cls, now: datetime, retention_days: int, ahead_days: int) -> Window:
        """Return the window at the moment `now`, which has a time zone."""
        today = now.astimezone(UTC).date()
        return cls(today - timedelta(days=retention_days), today + timedelta(days=ahead_days))

    def iterate_days(self) -> Iterator[date]:
        """Yield every day of the window, oldest first."""
        for number in range((self.newest - self.oldest).days + 1):
            yield self.oldest + timedelta(days=number)


def compute_day(microseconds: int) -> date:
    """Return the UTC day of a moment in microseconds since the epoch.

    The day of a moment before the year 1 is the first day of that year.
    """
    return EPOCH + timedelta(days=max(microseconds // MICROSECONDS_PER_DAY, _FIRST_DAY))


def _count_microseconds(day: date) -> int:
    """Return the first moment of a UTC day in microseconds since the epoch."""
    return (day - EPOCH).days * MICROSECONDS_PER_DAY
