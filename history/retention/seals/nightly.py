"""Seals the finished days of all tables: which are due, which must wait, and each fails alone."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, timedelta

from django.db import connection
from psycopg import Error, sql

from history.common.complaints import ExplainedError
from history.kinds.entities import ENTITIES
from history.kinds.kind import DayRows
from history.models import ArchivedDay, DaySeal
from history.retention.catalog import Partition
from history.retention.run_lock import reconnect
from history.retention.seals.seal import seal_day
from history.store.days.days import DayState

# Of the days given, each a table and a day, those that may still get rows, and why.
FindUnsettledDays = Callable[[Collection[tuple[str, date]]], Mapping[tuple[str, date], str]]


def find_days_to_seal(
    existing: Collection[Partition],
    today: date,
    after_days: int,
    unsettled: FindUnsettledDays,
    tables: Sequence[DayRows] = ENTITIES,
) -> tuple[list[tuple[DayRows, date]], Mapping[tuple[str, date], str]]:
    """The attached days to be sealed now, oldest first for each table: finished, with rows and
    without a seal; and those that may still get rows, with the reason. Tables that get no row
    afterwards are sealed without rows too; archived days are not. existing: the partitions of these
    tables. after_days: a day is finished this many days after its end; 0: no day is sealed."""
    if not after_days:
        return [], {}
    end = today - timedelta(days=after_days)
    settled = set(DaySeal.objects.values_list("table", "day"))
    settled |= set(ArchivedDay.objects.values_list("table", "day"))
    names_by_place = {
        (part.table, part.day): part.name
        for part in existing
        if part.day and part.day < end and part.state is DayState.ATTACHED
    }
    names = find_filled([name for place, name in names_by_place.items() if place not in settled])
    by_name = {table.table: table for table in tables}
    filled = {
        place
        for place, name in names_by_place.items()
        if name in names or (place not in settled and by_name[place[0]].closed)
    }
    waiting = unsettled(filled)
    order = list(by_name)
    days = sorted(filled - waiting.keys(), key=lambda place: (order.index(place[0]), place[1]))
    return [(by_name[table], day) for table, day in days], waiting


def seal_days(
    places: Sequence[tuple[DayRows, date]],
) -> Iterator[tuple[DayRows, date, Exception | None]]:
    """Seal each of these days; yields each, with the error if it could not be. The caller holds the
    lock of maintain's runs, which is taken again when the connection is lost."""
    connection.ensure_connection()
    for rows, day in places:
        try:
            seal_day(connection.connection, rows, day)
        except (ExplainedError, Error) as error:
            yield rows, day, error
            if connection.connection.closed:
                reconnect()
        else:
            yield rows, day, None


def find_filled(names: Sequence[str]) -> set[str]:
    """Return the partitions that have a row."""
    filled = set()
    with connection.cursor() as cursor:
        for name in names:
            # Of several nodes EXISTS would fetch all rows.
            cursor.execute(sql.SQL("SELECT true FROM {} LIMIT 1").format(sql.Identifier(name)))
            if cursor.fetchone() is not None:
                filled.add(name)
    return filled
