"""Slices of a window of time, and questions and answers about the changes in a slice.

Slices of a window follow one another in the order of the list, so that no statement sorts more
than one slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple

from history.kinds.entities import ENTITIES, EntityKind
from history.store.late_list import LateCursor
from history.store.versions import TimelinePosition, VersionKey, VersionRef
from history.timeline.query import MICROSECOND, TimelineOrder, VersionFilters

FIRST_SLICE: Final = timedelta(minutes=15)
# Without an author and a client: in a busy minute there are more than ten thousand versions.
FIRST_OPEN_SLICE: Final = timedelta(minutes=1)
_SHORTEST_SLICE: Final = timedelta(seconds=1)
_LONGEST_SLICE: Final = timedelta(days=400)
# How many times as wide as a slice the next one may be, at most and at least.
_MAX_GROWTH: Final = 8.0
_SMALLEST_GROWTH: Final = 0.1
_SLOW_SECONDS: Final = 1.0  # a slice should not take longer to read


class BlockRef(NamedTuple):
    """The primary key of a block in the table of its kind."""

    id: str
    stored_at: datetime
    stored_version: int


class PlaceInBlock(NamedTuple):
    """The block that has a version, and the position of the version in it."""

    block: BlockRef
    position: int  # among the versions of the block, from 1


class ListedChange(NamedTuple):
    """A version in a list of changes, without its snapshot."""

    position: TimelinePosition
    application: str  # the id of its application; its own id if it is not a child
    is_damaged: bool  # its block cannot be read; the version number is not known
    place: PlaceInBlock | None = None  # None: a plain row, or not known

    @property
    def ref(self) -> VersionRef:
        entity = ENTITIES[self.position.kind]
        key = VersionKey(self.position.version, self.position.updated_at)
        return VersionRef(entity, self.position.id, key)


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """A part of a window of time: low <= updated_at < high."""

    low: datetime
    high: datetime
    order: TimelineOrder
    width: timedelta = FIRST_SLICE
    seconds_before: float | None = None  # how long the slice before took to read

    @property
    def is_empty(self) -> bool:
        return self.low >= self.high

    def narrow(self, after: TimelinePosition) -> TimeSlice:
        """Return the rest of the window or slice after a position."""
        if self.order is TimelineOrder.DESC:
            if after.updated_at >= self.high:
                return self
            return replace(self, high=after.updated_at + MICROSECOND)
        return replace(self, low=max(self.low, after.updated_at))

    def cut_first(self) -> TimeSlice:
        """Return the first slice of this window, `width` long."""
        if self.high - self.low <= self.width:
            return self
        if self.order is TimelineOrder.DESC:
            return replace(self, low=self.high - self.width)
        return replace(self, high=self.low + self.width)

    def skip(self, first: TimeSlice, share: float, seconds: float) -> TimeSlice:
        """Return the window without its first slice.

        `width` adapts to the first slice: it grows if the slice had few versions, and shrinks if it
        was slow to read.

        Args:
            share: How many versions the first slice had, divided by the limit of one read.
            seconds: How long the first slice took to read.
        """
        growth = min(_MAX_GROWTH, 1 / (share + 0.01), self._compute_affordable_growth(seconds))
        width = min(max(self.width * growth, _SHORTEST_SLICE), _LONGEST_SLICE)
        if self.order is TimelineOrder.DESC:
            return replace(self, high=first.low, width=width, seconds_before=seconds)
        return replace(self, low=first.high, width=width, seconds_before=seconds)

    def _compute_affordable_growth(self, seconds: float) -> float:
        """Return how many times as wide the next slice may be, to take at most _SLOW_SECONDS.

        On a packed day a narrow slice takes as long as a wide one, because PostgreSQL searches the
        blocks of the whole day. So if this slice took less than twice as long as the slice before,
        the next slice may grow by _MAX_GROWTH.

        Args:
            seconds: How long this slice took to read.
        """
        if self.seconds_before is not None and seconds < 2 * self.seconds_before:
            return _MAX_GROWTH
        return max(_SMALLEST_GROWTH, _SLOW_SECONDS / (seconds + 0.001))

    @property
    def end(self) -> TimelinePosition:
        """The position behind all versions of the slice and before all others of the window."""
        moment = self.low if self.order is TimelineOrder.DESC else self.high
        return TimelinePosition(moment, -1, "", -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesQuestion:
    """A question for versions in a slice of time."""

    kinds: Sequence[EntityKind]
    filters: VersionFilters  # its times and its path are not applied
    slice: TimeSlice
    after: TimelinePosition  # the answer begins after this position
    limit: int
    # A top-level field: versions in plain rows that certainly did not change it may be left out.
    # None: no version is left out.
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LateQuestion:
    """A question for versions in the late list."""

    kinds: Sequence[EntityKind]
    filters: VersionFilters  # its times and its path are not applied
    since: datetime  # the beginning of the feed; older versions are left out
    before: TimelinePosition  # the position of the feed, which will have later versions itself
    cursor: LateCursor  # the answer begins here
    limit: int


class ActivityRow(NamedTuple):
    """How many versions of one kind a person made on one day through one service."""

    kind: int  # an index of ENTITIES
    day: date  # in the requested time zone
    client_id: str
    versions: int
    first: datetime
    last: datetime
