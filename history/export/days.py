"""Which days an export writes, where their rows are, and which days it cannot write."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta

from psycopg import sql

from history.daily.days import DayState, bounds, partition_name
from history.daily.window import Window
from history.entities import Entity
from history.partitions.catalog import Partition


@dataclass(frozen=True, slots=True)
class Day:
    """One day to export. part: its table, None if it has none. shared: whether that table has
    other rows too. archived: its rows in the archive, None if it is not there. With both, each row
    is exported once."""

    name: str
    day: date
    part: Partition | None
    archived: int | None
    shared: bool = False

    @property
    def rows(self) -> int:
        """How many rows the day has, an estimate; 0 where nothing is known."""
        return max(self.part.rows if self.part and not self.shared else 0, self.archived or 0)

    def source(self, table: str) -> sql.Composable:
        """The rows that the database has of the day, for FROM. table: the partitioned one."""
        if self.part is None or not self.shared:
            return sql.Identifier(self.part.name if self.part else self.name)
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


@dataclass(frozen=True, slots=True)
class Chosen:
    """Both oldest first."""

    days: list[Day]
    missing: list[Missing]


@dataclass(frozen=True, slots=True)
class Known:
    """The days of a table. archived: the rows of each day in the archive. has_archive: whether its
    files can be read. window: the days that retention keeps."""

    entity: Entity
    parts: Collection[Partition]
    archived: Mapping[date, int]
    has_archive: bool
    window: Window


def choose(known: Known, since: date | None, until: date | None) -> Chosen:
    """The days of [since, until). since None: from the oldest day that exists. until None: without
    today, of which rows are still coming."""
    foreign = [part for part in known.parts if _is_foreign(part)]
    tables = {day: part for part in known.parts if part not in foreign and (day := _day(part))}
    starts = [part.start.date() for part in foreign if part.start]
    first = since or min([*tables, *starts, *known.archived], default=known.window.oldest)
    end = until or known.window.newest
    no_days = "rows in {}, which is no partition of days; move them to their days"
    without = [part.name for part in foreign if part.start is None and first < end]
    days = list[Day]()
    missing = [Missing(first, _before(end), no_days.format(name)) for name in without]
    for number in range((end - first).days):
        day = first + timedelta(days=number)
        theirs = next((part for part in foreign if part.covers(day)), None)
        part, archived = tables.get(day, theirs), known.archived.get(day)
        why = _why_missing(known, day, part, archived)
        if why is None and (part or archived is not None):
            name = partition_name(known.entity.table, day)
            days.append(Day(name, day, part, archived, shared=part is theirs))
        elif why and missing and missing[-1].why == why and missing[-1].last == _before(day):
            missing[-1] = Missing(missing[-1].first, day, why)
        elif why:
            missing.append(Missing(day, day, why))
    return Chosen(days, missing)


def _why_missing(
    known: Known, day: date, part: Partition | None, archived: int | None
) -> str | None:
    if archived is not None and not known.has_archive:
        return "in the archive, and ANNALS_ARCHIVE_URL is not set"
    if part is None and archived is None and day < known.window.oldest:
        return "before retention, and not in the archive"
    return None


def _day(part: Partition) -> date | None:
    """The day of a table whose rows count: a partition, or one that maintain is about to drop."""
    if part.state is DayState.ATTACHED and part.start:
        return part.start.date()
    return part.day


def _is_foreign(part: Partition) -> bool:
    """Whether the partition does not have exactly one day: somebody else made it."""
    if part.state is not DayState.ATTACHED:
        return False
    start, end = part.start, part.end
    whole = start and end and start.time() == time() and end - start == timedelta(days=1)
    return not whole


def _before(day: date) -> date:
    return day - timedelta(days=1)
