"""How long it takes to read what is not read yet, and which partitions wait meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from math import inf
from typing import TypeVar

P = TypeVar("P", bound=Hashable)

# Messages per second of one consumer, where none has measured it yet: below every measured rate.
ASSUMED_RATE = 5_000.0
# A partition is endangered if its oldest unread message is kept for less than this, and for less
# than half of the time for which a new one is.
ENDANGERED_SECONDS = 3_600.0
# Others that lose messages almost as soon are read at the same time.
CLOSE_SECONDS = 60.0
CLOSE_SHARE = 0.1
# What is this close to its end costs little to read: new messages of live topics go on to be stored
# at once.
SMALL_UNREAD = 1_000


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is not read of one partition. unread: offsets. arriving: offsets per second.
    seconds: until the first of it is lost, inf for never. kept: for how many seconds a message that
    comes now is kept, inf for ever."""

    unread: int
    arriving: float
    seconds: float
    kept: float = inf

    @property
    def endangered(self) -> bool:
        return self.unread > 0 and self.seconds < min(ENDANGERED_SECONDS, self.kept / 2)


def catch_up(backlogs: Mapping[P, Backlog], rate: float) -> dict[P, float]:
    """Seconds until each partition is read to its end, the most endangered first; inf if as many
    messages come as are read. rate: of all partitions together, in messages per second."""
    net = rate - sum(each.arriving for each in backlogs.values())
    seconds: dict[P, float] = {}
    ahead = 0
    for place, each in sorted(backlogs.items(), key=lambda item: item[1].seconds):
        ahead += each.unread
        if not each.unread:
            seconds[place] = 0.0
        else:
            seconds[place] = ahead / net if net > 0 else inf
    return seconds


def to_hold(backlogs: Mapping[P, Backlog]) -> Collection[P]:
    """The partitions to hold back, so that the most endangered is read first: those with a backlog
    and more time; none if no partition is endangered."""
    endangered = [each.seconds for each in backlogs.values() if each.endangered]
    if not endangered:
        return frozenset()
    first = min(endangered)
    close = first + max(CLOSE_SECONDS, CLOSE_SHARE * first)
    return frozenset(
        place
        for place, each in backlogs.items()
        if each.seconds > close and each.unread > SMALL_UNREAD
    )
