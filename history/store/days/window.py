"""The days that are kept: from the start of retention to some days ahead, always UTC."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

EPOCH = date(1970, 1, 1)
MICROSECONDS_PER_DAY = 86_400_000_000
_FIRST_DAY = (date.min - EPOCH).days


@dataclass(frozen=True, slots=True)
class Window:
    """The UTC days, both ends included, of which versions are stored. start: the first moment
    inside, end: the first one after, in microseconds since the epoch."""

    oldest: date
    newest: date
    start: int = field(init=False)
    end: int = field(init=False)

    def __post_init__(self) -> None:
        for name, day in (("start", self.oldest), ("end", self.newest + timedelta(days=1))):
            object.__setattr__(self, name, (day - EPOCH).days * MICROSECONDS_PER_DAY)

    @classmethod
    def at(cls, now: datetime, retention_days: int, ahead_days: int) -> Window:
        """The window at a moment (which has an offset)."""
        today = now.astimezone(UTC).date()
        return cls(today - timedelta(days=retention_days), today + timedelta(days=ahead_days))

    def iterate_days(self) -> Iterator[date]:
        """Every day of the window, oldest first."""
        for number in range((self.newest - self.oldest).days + 1):
            yield self.oldest + timedelta(days=number)


def compute_day(microseconds: int) -> date:
    """The UTC day of a moment given in microseconds since the epoch."""
    return EPOCH + timedelta(days=max(microseconds // MICROSECONDS_PER_DAY, _FIRST_DAY))
