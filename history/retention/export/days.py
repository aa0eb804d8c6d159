"""Finds the days to export, where the rows of each day are, and the days that are missing."""

from dataclasses import dataclass
from datetime import date, timedelta

from django.conf import settings
from django.db import connection
from psycopg import sql

from history.common import clock
from history.kinds.entities import EntityKind
from history.models import ArchivedDay
from history.retention import catalog
from history.retention.catalog import Partition
from history.store.days.days import DayState, build_partition_name, compute_bounds
from history.store.days.window import Window


@dataclass(frozen=True, slots=True)
class ExportDay:
    """One day to export. A row that is both in its table and in the archive is exported once."""

    name: str  # of the day's partition
    day: date
    partition: Partition | None  # the partition or detached table that can have rows of the day
    archived: int | None  # how many rows the archive has; None if the day is not archived

    @property
    def rows(self) -> int:
        """About how many rows the day has; 0 if it is not known."""
        return self.archived or (
            self.partition.rows if self.partition and self.partition.day else 0
        )

    def build_source(self, table: str) -> sql.Composable:
        """Build a FROM item with the rows that the database has of this day.

        Args:
            table: The partitioned table.
        """
        # The query names the day's own table. If `maintain` drops it meanwhile, the query fails. A
        # query of the partitioned table would return no rows.
        if self.partition and (self.partition.day or self.partition.state is not DayState.ATTACHED):
            return sql.Identifier(self.partition.name)
        start, end = map(sql.Literal, compute_bounds(self.day))
        return sql.SQL(
            "(SELECT * FROM {} WHERE updated_at >= {} AND updated_at < {}) AS of_day"
        ).format(sql.Identifier(table), start, end)


@dataclass(frozen=True, slots=True)
class MissingDays:
    """The days from `first` to `last`, both included, which cannot be exported."""

    first: date
    last: date
    reason: str

    def __str__(self) -> str:
        span = str(self.first) if self.first == self.last else f"{self.first} to {self.last}"
        return f"{span}: {self.reason}"


def choose_days(
    entity: EntityKind, since: date | None, until: date | None
) -> tuple[list[ExportDay], list[MissingDays]]:
    """Return the days to export, and the days that cannot be exported. Both are oldest first.

    Args:
        since: The first day to export. None: the oldest day that exists.
        until: The first day after the days to export. None: today, because today still gets rows.
    """
    partitions = catalog.read_partitions(connection, [entity.table])
    # A day's own table is preferred to a default partition.
    partitions.sort(key=lambda partition: partition.day is None)
    archive = dict(ArchivedDay.objects.filter(table=entity.table).values_list("day", "rows"))
    window = Window.at(clock.now(), settings.ANNALS.retention_days, 0)
    starts = [
        partition.start.date() if partition.start else partition.day for partition in partitions
    ]
    first = since or min([*filter(None, starts), *archive], default=window.oldest)
    days, missing = list[ExportDay](), list[MissingDays]()
    for number in range(((until or window.newest) - first).days):
        day = first + timedelta(days=number)
        partition = next(
            (partition for partition in partitions if _can_have_rows(partition, day)), None
        )
        archived, reason = archive.get(day), ""
        if archived is not None and settings.ANNALS.archive_url is None:
            reason = "in the archive, and ANNALS_ARCHIVE_URL is not set"
        elif partition is None and archived is None and day < window.oldest:
            reason = "before retention, and not in the archive"
        elif partition or archived is not None:
            days.append(
                ExportDay(build_partition_name(entity.table, day), day, partition, archived)
            )
        previous = missing[-1] if missing else None
        if (
            reason
            and previous
            and (previous.last, previous.reason) == (day - timedelta(days=1), reason)
        ):
            missing[-1] = MissingDays(previous.first, day, reason)
        elif reason:
            missing.append(MissingDays(day, day, reason))
    return days, missing


def _can_have_rows(partition: Partition, day: date) -> bool:
    """Return whether a partition or detached table can have rows of a day.

    A default partition can have rows of any day.
    """
    if partition.state is not DayState.ATTACHED:
        return partition.day == day
    return partition.start is None or partition.covers_part_of(day)
