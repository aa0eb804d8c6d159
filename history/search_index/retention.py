"""Removes the search keys that no kept version has."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from functools import partial

from history import days, distribution
from history.canonical import Connection
from history.days import State
from history.distribution.held import Held, held
from history.models import MaintainRun
from history.partitions.catalog import Partition

# 4 MB: about 30,000 keys. One short transaction each.
PAGES_AT_ONCE = 512

# A key that a consumer stores again at this moment is locked by it, and stays. Its ctid is the
# place of the row in the table, so each statement reads its own pages, once.
_REMOVE = """
DELETE FROM search_key WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM search_key WHERE ctid >= %s::tid AND ctid < %s::tid AND day < %s
    FOR UPDATE SKIP LOCKED))
"""
# Where the keys are on several nodes, the same pages of each shard. A key that is locked is waited
# for, and stays if it was stored again.
_REMOVE_SPREAD = """
DELETE FROM search_key WHERE ctid >= %s::tid AND ctid < %s::tid AND day < %s
"""


def oldest_searched(partitions: Iterable[Partition], oldest: date) -> date:
    """The oldest day whose versions must be found: `oldest`, the first day of retention, or
    an older day that is held. A day restored from the archive does not count."""
    days = [part.day for part in partitions if part.state is State.ATTACHED and not part.restored]
    return min([oldest, *(day for day in days if day is not None)])


def oldest_there(partitions: Iterable[Partition], searched: date) -> date:
    """The oldest day that has a table. searched: as of oldest_searched; days that were restored
    from the archive are often older."""
    restored = [part.start for part in partitions if part.restored]
    return min([searched, *(start.date() for start in restored if start is not None)])


def remove_old(connection: Connection, before: date) -> int:
    """Remove the keys that were seen last before this day; returns their number.

    Reads the whole table, so it does so only once for each day: afterwards a run of maintain with
    this day as search_keys_before is on record. `connection` is in autocommit mode.
    """
    if MaintainRun.objects.filter(search_keys_before__gte=before).exists():
        return 0
    if distribution.active(connection):
        return _remove_spread(connection, before)
    row = connection.execute(
        "SELECT pg_relation_size('search_key') / current_setting('block_size')::int"
    ).fetchone()
    pages = row[0] if row else 0
    removed = 0
    for first in range(0, pages, PAGES_AT_ONCE):
        place = (f"({first},0)", f"({first + PAGES_AT_ONCE},0)")
        removed += connection.execute(_REMOVE, (*place, before)).rowcount
    return removed


def _remove_spread(connection: Connection, before: date) -> int:
    """The same where the keys are on several nodes. If a consumer has locked keys in another order,
    one of the two is ended, and repeats."""
    found = held(connection, ["search_key"]).get("search_key", Held())
    step = max(1, PAGES_AT_ONCE // max(1, len(found.shards)))
    removed = 0
    for first in range(0, found.pages, step):
        place = (f"({first},0)", f"({first + step},0)")
        remove = partial(connection.execute, _REMOVE_SPREAD, (*place, before))
        removed += days.retry_lock(remove, days.LOCK_WAIT_S).rowcount
    return removed
