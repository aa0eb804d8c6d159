"""Which days an export writes, where their rows are, and which days it cannot write."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta

from history.days import State, partition_name
from history.entities import Entity
from history.partitions.catalog import Partition
from history.window import Window


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
        """How many rows the day has, an estimate."""
        return max(self.part.rows if self.part else 0, self.archived or 0)


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
    days, missing = _of_others(foreign, first, end)
    for number in range((end - first).days):
        day = first + timedelta(days=number)
        part, archived = tables.get(day), known.archived.get(day)
        why = _why_missing(known, day, part, archived)
        if part is None and any(each.covers(day) for each in foreign):
            why = None  # it is in the file of a longer partition that somebody else made
        if why is None and (part or archived is not None):
            name = part.name if part else partition_name(known.entity.table, day)
            days.append(Day(name, day, part, archived))
        elif why and missing and missing[-1].why == why and missing[-1].last == _before(day):
            missing[-1] = Missing(missing[-1].first, day, why)
        elif why:
            missing.append(Missing(day, day, why))
    return Chosen(sorted(days, key=lambda each: (each.day, each.name)), missing)


def _of_others(
    foreign: Collection[Partition], first: date, end: date
) -> tuple[list[Day], list[Missing]]:
    """The partitions that somebody else made, each as one day if it is wholly in [first, end)."""
    days, missing = list[Day](), list[Missing]()
    for part in foreign if first < end else ():
        if part.start is None or part.end is None:
            why = f"rows in {part.name}, which is no partition of days; move them to their days"
            missing.append(Missing(first, _before(end), why))
            continue
        begin, last = part.start.date(), (part.end - timedelta(microseconds=1)).date()
        if first <= begin and last < end:
            days.append(Day(part.name, begin, part, None))
        elif begin < end and first <= last:
            why = f"rows in {part.name}, which has {begin} to {last}; export these days together"
            missing.append(Missing(max(first, begin), min(last, _before(end)), why))
    return days, missing


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
    if part.state is State.ATTACHED and part.start:
        return part.start.date()
    return part.day


def _is_foreign(part: Partition) -> bool:
    """Whether the partition does not have exactly one day: somebody else made it."""
    if part.state is not State.ATTACHED:
        return False
    start, end = part.start, part.end
    whole = start and end and start.time() == time() and end - start == timedelta(days=1)
    return not whole


def _before(day: date) -> date:
    return day - timedelta(days=1)
