"""Seals the finished days of all tables: which are due, which must wait, and each fails alone."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, timedelta

from django.db import connection
from psycopg import Error, sql

from history.daily.days import DayState
from history.entities import ENTITIES
from history.failure.complaints import Complaint
from history.kinds.kind import DayRows
from history.models import ArchivedDay, DaySeal
from history.partitions.catalog import Partition
from history.partitions.exclusive import reconnect
from history.seals.seal import seal

# Of the days given, each a table and a day, those that may still get rows, and why.
Unsettled = Callable[[Collection[tuple[str, date]]], Mapping[tuple[str, date], str]]


def due(
    existing: Collection[Partition],
    today: date,
    after_days: int,
    unsettled: Unsettled,
    tables: Sequence[DayRows] = ENTITIES,
) -> tuple[list[tuple[DayRows, date]], Mapping[tuple[str, date], str]]:
    """The attached days to be sealed now, oldest first for each table: finished, with rows and
    without a seal; and those that may still get rows, with the reason. Tables that get no row
    afterwards are sealed without rows too; archived days are not. existing: the partitions of these
    tables. after_days: a day is finished this many days after its end; 0: no day is sealed."""
    if not after_days:
        return [], {}
    finished = today - timedelta(days=after_days)
    done = set(DaySeal.objects.values_list("table", "day"))
    done |= set(ArchivedDay.objects.values_list("table", "day"))
    found = {
        (part.table, part.day): part.name
        for part in existing
        if part.day and part.day < finished and part.state is DayState.ATTACHED
    }
    names = with_rows([name for place, name in found.items() if place not in done])
    by_name = {each.table: each for each in tables}
    filled = {
        place
        for place, name in found.items()
        if name in names or (place not in done and by_name[place[0]].closed)
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
            seal(connection.connection, rows, day)
        except (Complaint, Error) as error:
            yield rows, day, error
            if connection.connection.closed:
                reconnect()
        else:
            yield rows, day, None


def with_rows(names: Sequence[str]) -> set[str]:
    """Those of the partitions that have a row."""
    found = set()
    with connection.cursor() as cursor:
        for name in names:
            # Of several nodes EXISTS would fetch all rows.
            cursor.execute(sql.SQL("SELECT true FROM {} LIMIT 1").format(sql.Identifier(name)))
            if cursor.fetchone() is not None:
                found.add(name)
    return found
