"""The days that `partitions maintain` packs: which they are, and packing them."""

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from itertools import groupby
from operator import itemgetter

from django.conf import settings
from django.db import connection

from history.common.text_tables import pluralize
from history.kinds.entities import BY_TABLE, ENTITIES
from history.retention import catalog, packing
from history.retention.maintain import MaintainOutcome
from history.retention.run_lock import hold_run_lock, reconnect
from history.retention.seals import day_snapshot
from history.store.database import forms
from history.store.days import table_swap
from history.store.days.days import build_partition_name, is_packed
from ingest.completeness.holds import find_days_to_hold

# For how long a run of maintain packs days, and how many rows a second.
PACK_SECONDS = 1_800
PACK_ROWS_PER_SECOND = 20_000


def find_due_days(today: date) -> list[tuple[str, date]]:
    """Tables and days, the newest first. A day of which messages are unread waits."""
    connection.ensure_connection()
    if day_snapshot.is_spread(connection.connection, ENTITIES[0].table):
        return []
    existing = catalog.read_partitions(connection, [entity.table for entity in ENTITIES])
    days = packing.find_due_days(existing, today, settings.ANNALS.pack_after_days)
    waiting = find_days_to_hold(set(days))
    return [place for place in days if place not in waiting]


def pack_due(today: date, outcome: MaintainOutcome, advance: Callable[[int], None]) -> None:
    """Pack finished days, one after another, at a rate that nobody notices. None is begun after
    SECONDS: the next run goes on; none while a process of an earlier release is connected. A day
    that fails is reported, and the others are packed."""
    with hold_run_lock():
        table_swap.remove_left_triggers(connection.connection)
        table_swap.guard_packed_days(connection.connection)
        end = time.monotonic() + PACK_SECONDS
        for table, day in find_due_days(today):
            error: Exception | None = None
            try:
                packing.pack_day(
                    connection.connection, BY_TABLE[table], day, rate=PACK_ROWS_PER_SECOND
                )
            except forms.EarlierReleaseError as waits:
                outcome.packing_waits = str(waits)
                return
            except Exception as failed:  # whatever it is: an older day may not fail
                error = failed
            outcome.note_result(outcome.packed, build_partition_name(table, day), error)
            if connection.connection.closed:
                reconnect()
            advance(1)
            if time.monotonic() > end:
                return


def find_packed_days() -> list[tuple[str, date]]:
    """The packed days that exist, each with its table."""
    connection.ensure_connection()
    existing = catalog.read_partitions(connection, [entity.table for entity in ENTITIES])
    return [
        (part.table, part.day)
        for part in existing
        if part.day and is_packed(connection.connection, part.table, part.day)
    ]


def describe_days(days: Iterable[tuple[str, date]]) -> Iterator[str]:
    """For people: how many days of each table."""
    for table, places in groupby(sorted(days), itemgetter(0)):
        dates = [day for _, day in places]
        yield f"{table}: {pluralize(len(dates), 'day')} to pack, {dates[0]} to {dates[-1]}"
