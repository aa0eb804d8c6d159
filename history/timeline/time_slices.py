"""Slices of a span of time, requests for the changes in a slice, and the results of requests.

A list of changes reads its span slice by slice, so that no statement sorts more than one slice.
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

# The width of the first slice.
FIRST_SLICE: Final = timedelta(minutes=15)
# The width of the first slice of a list that is not limited to an author or a service: a busy
# minute has more than ten thousand versions.
FIRST_SLICE_WITHOUT_MAKER: Final = timedelta(minutes=1)
_SHORTEST_SLICE: Final = timedelta(seconds=1)
_LONGEST_SLICE: Final = timedelta(days=400)
# By how much the width of the next slice may be multiplied, at most and at least.
_MAX_GROWTH: Final = 8.0
_SMALLEST_GROWTH: Final = 0.1
_SLOW_SECONDS: Final = 1.0  # reading a slice should not take longer than this


class BlockRef(NamedTuple):
    """The primary key of a block in the table of its kind."""

    id: str
    stored_at: datetime
    stored_version: int


class PositionInBlock(NamedTuple):
    """A version's block, and the position of the version in this block."""

    block: BlockRef
    position: int  # among the versions of the block, from 1


class ListedChange(NamedTuple):
    """A version in a list of changes, without its snapshot."""

    position: TimelinePosition
    application: str  # the id of its application; its own id if it is not a child
    is_damaged: bool  # its block cannot be read; the version number is not known
    in_block: PositionInBlock | None = None  # None: a plain row, or not known

    @property
    def ref(self) -> VersionRef:
        entity = ENTITIES[self.position.kind]
        key = VersionKey(self.position.version, self.position.updated_at)
        return VersionRef(entity, self.position.id, key)


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """A span of time, or one slice of it: low <= updated_at < high."""

    low: datetime
    high: datetime
    order: TimelineOrder
    width: timedelta = FIRST_SLICE  # of the next slice
    seconds_before: float | None = None  # how long the slice before took to read

    @property
    def is_empty(self) -> bool:
        return self.low >= self.high

    def narrow(self, after: TimelinePosition) -> TimeSlice:
        """Return what is left of this span or slice after a position."""
        if self.order is TimelineOrder.DESC:
            if after.updated_at >= self.high:
                return self
            return replace(self, high=after.updated_at + MICROSECOND)
        return replace(self, low=max(self.low, after.updated_at))

    def cut_first(self) -> TimeSlice:
        """Return the first slice of this span, `width` long."""
        if self.high - self.low <= self.width:
            return self
        if self.order is TimelineOrder.DESC:
            return replace(self, low=self.high - self.width)
        return replace(self, high=self.low + self.width)

    def skip(self, first: TimeSlice, share: float, seconds: float) -> TimeSlice:
        """Return this span without its first slice, which was read.

        The next slice gets wider if the first slice had few versions, and narrower if reading the
        first slice was slow.

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
        """Return by which factor the next slice may be wider than the last slice.

        Reading the next slice should take at most _SLOW_SECONDS. But on a packed day a narrow slice
        takes as long as a wide slice, because PostgreSQL searches the blocks of the whole day. The
        method assumes this case, and returns _MAX_GROWTH, if the last slice took less than twice as
        long as the slice before it, whichever of the two was wider.

        Args:
            seconds: How long the last slice took to read.
        """
        if self.seconds_before is not None and seconds < 2 * self.seconds_before:
            return _MAX_GROWTH
        return max(_SMALLEST_GROWTH, _SLOW_SECONDS / (seconds + 0.001))

    @property
    def end(self) -> TimelinePosition:
        """The position at the end of this slice, after all its versions."""
        moment = self.low if self.order is TimelineOrder.DESC else self.high
        return TimelinePosition(moment, -1, "", -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesQuestion:
    """A request to the tables for the versions in a slice of time."""

    kinds: Sequence[EntityKind]
    filters: VersionFilters  # `since`, `until` and `path` in it are not applied
    slice: TimeSlice
    after: TimelinePosition  # only versions after this position are requested
    limit: int
    # A top-level field: versions in plain rows that certainly did not change it may be left out.
    # None: no version is left out.
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LateQuestion:
    """A request to the late list for versions with moments that a feed has passed."""

    kinds: Sequence[EntityKind]
    filters: VersionFilters  # `since`, `until` and `path` in it are not applied
    since: datetime  # the beginning of the feed; older versions are left out
    until: TimelinePosition  # how far the feed was read; versions after it are left out
    cursor: LateCursor  # only entries of the late list after this cursor are requested
    limit: int


class ActivityRow(NamedTuple):
    """The number of versions of one kind that a person made on one day through one service."""

    kind: int  # an index of ENTITIES
    day: date  # in the requested time zone
    client_id: str
    versions: int
    first: datetime
    last: datetime
