"""The days that `partitions maintain` packs: which they are, and packing them."""

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from itertools import groupby
from operator import itemgetter

from django.conf import settings
from django.db import connection

from history import packing
from history.base.table import counted
from history.daily import rebuild
from history.daily.days import is_packed, partition_name
from history.database import forms
from history.entities import BY_TABLE, ENTITIES
from history.partitions import catalog
from history.partitions.exclusive import reconnect, run_lock
from history.partitions.maintain import Outcome
from history.seals import day_snapshot
from ingest.completeness.holds import may_get_rows

# For how long a run of maintain packs days, and how many rows a second.
SECONDS = 1_800
RATE = 20_000


def due(today: date) -> list[tuple[str, date]]:
    """Tables and days, the newest first. A day of which messages are unread waits."""
    connection.ensure_connection()
    if day_snapshot.spread(connection.connection, ENTITIES[0].table):
        return []
    existing = catalog.read(connection, [entity.table for entity in ENTITIES])
    days = packing.due(existing, today, settings.ANNALS.pack_after_days)
    waiting = may_get_rows(set(days))
    return [each for each in days if each not in waiting]


def pack_due(today: date, outcome: Outcome, advance: Callable[[int], None]) -> None:
    """Pack finished days, one after another, at a rate that nobody notices. None is begun after
    SECONDS: the next run goes on; none while a process of an earlier release is connected. A day
    that fails is reported, and the others are packed."""
    with run_lock():
        rebuild.remove_left(connection.connection)
        rebuild.guard_packed_days(connection.connection)
        end = time.monotonic() + SECONDS
        for table, day in due(today):
            error: Exception | None = None
            try:
                packing.pack(connection.connection, BY_TABLE[table], day, rate=RATE)
            except forms.EarlierReleaseError as waits:
                outcome.packing_waits = str(waits)
                return
            except Exception as failed:  # whatever it is: an older day may not fail
                error = failed
            outcome.note_in(outcome.packed, partition_name(table, day), error)
            if connection.connection.closed:
                reconnect()
            advance(1)
            if time.monotonic() > end:
                return


def packed() -> list[tuple[str, date]]:
    """The packed days that exist, each with its table."""
    connection.ensure_connection()
    existing = catalog.read(connection, [entity.table for entity in ENTITIES])
    return [
        (part.table, part.day)
        for part in existing
        if part.day and is_packed(connection.connection, part.table, part.day)
    ]


def lines(days: Iterable[tuple[str, date]]) -> Iterator[str]:
    """For people: how many days of each table."""
    for table, places in groupby(sorted(days), itemgetter(0)):
        its = [day for _, day in places]
        yield f"{table}: {counted(len(its), 'day')} to pack, {its[0]} to {its[-1]}"
