"""Counts the changes that a person made in all documents, by day and by service."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import date, datetime
from typing import Final, NamedTuple

from history.common import clock, deadline
from history.kinds.entities import ENTITIES, EntityKind
from history.store.catalogue import people
from history.store.catalogue.people import NamedLogin
from history.timeline import absence
from history.timeline.query import TimelineOrder
from history.timeline.reader import HistoryReader
from history.timeline.time_slices import TimeSlice
from history.timeline.visible_changes import fetch_activity

# Older days are left out when the count has taken this long.
_COUNT_SECONDS: Final = 3.0


class PersonActivity(NamedTuple):
    """How many versions a person made on each day. The oldest days can be missing."""

    days: Mapping[date, Mapping[EntityKind, int]]  # the number of versions, by day and kind
    # each service through which the person made versions, with their number; largest number first
    services: list[tuple[NamedLogin, int]]
    first: datetime | None  # the moment of the first change
    last: datetime | None
    is_whole: bool  # False if the count took too long, so that the oldest days are not counted


def fetch_person_activity(reader: HistoryReader, author: str, zone: str) -> PersonActivity | None:
    """Count the versions that a person made, by day.

    Days are counted from the newest to the oldest. When this has taken _COUNT_SECONDS, the older
    days are left out. Versions with moments ahead of the clock are counted too.

    Args:
        zone: The IANA name of the time zone of the days.

    Returns:
        None if the need-to-know rule limits the viewer.
    """
    reader.viewer.access.is_one_entry = True
    until = time.monotonic() + _COUNT_SECONDS
    now = clock.now()
    # There are few versions ahead of the clock, so one statement counts all of them.
    ahead = TimeSlice(now, absence.get_accepted_end(), TimelineOrder.DESC)
    rows = fetch_activity(reader, author, ahead, zone)
    if rows is None:
        return None
    span = TimeSlice(absence.get_retention_start(), now, TimelineOrder.DESC)
    while not span.is_empty and time.monotonic() < until:
        deadline.check()
        first, began = span.cut_first(), time.monotonic()
        slice_rows = fetch_activity(reader, author, first, zone)
        if slice_rows is None:
            return None
        rows += slice_rows
        span = span.skip(first, 0.0, time.monotonic() - began)
    days: dict[date, Counter[EntityKind]] = defaultdict(Counter)
    counts: Counter[str] = Counter()
    for row in rows:
        days[row.day][ENTITIES[row.kind]] += row.versions
        counts[row.client_id] += row.versions
    logins = people.fetch_named_logins(counts)
    return PersonActivity(
        days=days,
        services=[(logins[client_id], count) for client_id, count in counts.most_common()],
        first=min((row.first for row in rows), default=None),
        last=max((row.last for row in rows), default=None),
        is_whole=span.is_empty,
    )
