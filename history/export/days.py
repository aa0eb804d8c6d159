"""Which days an export writes, where their rows are, and which days it cannot write."""

from dataclasses import dataclass
from datetime import date, timedelta

from django.conf import settings
from django.db import connection
from psycopg import sql

from history.base import clock
from history.daily.days import DayState, bounds, partition_name
from history.daily.window import Window
from history.entities import Entity
from history.models import ArchivedDay
from history.partitions import catalog
from history.partitions.catalog import Partition


@dataclass(frozen=True, slots=True)
class Day:
    """One day to export. part: its table, None if it has none. archived: its rows in the archive,
    None if it is not there. With both, each row is exported once."""

    name: str
    day: date
    part: Partition | None
    archived: int | None

    @property
    def rows(self) -> int:
        """How many rows the day has, an estimate; 0 where nothing is known."""
        return self.archived or (self.part.rows if self.part and self.part.day else 0)

    def source(self, table: str) -> sql.Composable:
        """The rows that the database has of the day, for FROM. table: the partitioned one."""
        # By its name, so that a day that `maintain` drops meanwhile is an error, not without rows.
        if self.part and (self.part.day or self.part.state is not DayState.ATTACHED):
            return sql.Identifier(self.part.name)
        start, end = map(sql.Literal, bounds(self.day))
        return sql.SQL(
            "(SELECT * FROM {} WHERE updated_at >= {} AND updated_at < {}) AS of_day"
        ).format(sql.Identifier(table), start, end)


@dataclass(frozen=True, slots=True)
class Missing:
    """Days first..last, both included, that cannot be exported."""

    first: date
    last: date
    why: str

    def __str__(self) -> str:
        span = str(self.first) if self.first == self.last else f"{self.first} to {self.last}"
        return f"{span}: {self.why}"


def choose(
    entity: Entity, since: date | None, until: date | None
) -> tuple[list[Day], list[Missing]]:
    """The days of [since, until), and those of them that are gone; both oldest first. since None:
    from the oldest day that exists. until None: without today, of which rows are still coming."""
    parts = catalog.read(connection, [entity.table])
    parts.sort(key=lambda part: part.day is None)  # the table of a day before a default partition
    archive = dict(ArchivedDay.objects.filter(table=entity.table).values_list("day", "rows"))
    window = Window.at(clock.now(), settings.ANNALS.retention_days, 0)
    starts = [part.start.date() if part.start else part.day for part in parts]
    first = since or min([*filter(None, starts), *archive], default=window.oldest)
    days, missing = list[Day](), list[Missing]()
    for number in range(((until or window.newest) - first).days):
        day = first + timedelta(days=number)
        part = next((part for part in parts if _may_have(part, day)), None)
        archived, why = archive.get(day), ""
        if archived is not None and settings.ANNALS.archive_url is None:
            why = "in the archive, and ANNALS_ARCHIVE_URL is not set"
        elif part is None and archived is None and day < window.oldest:
            why = "before retention, and not in the archive"
        elif part or archived is not None:
            days.append(Day(partition_name(entity.table, day), day, part, archived))
        before = missing[-1] if missing else None
        if why and before and (before.last, before.why) == (day - timedelta(days=1), why):
            missing[-1] = Missing(before.first, day, why)
        elif why:
            missing.append(Missing(day, day, why))
    return days, missing


def _may_have(part: Partition, day: date) -> bool:
    """Whether a table may have rows of a day: a default partition may have those of any."""
    if part.state is not DayState.ATTACHED:
        return part.day == day
    return part.start is None or part.covers(day)
