"""Checks whether sealed days are unchanged and whether the chain of their seals is complete."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

import msgspec
import psycopg
from django.db.models import Min
from psycopg import sql

from history.base import clock
from history.base.error_text import describe
from history.base.table import counted
from history.blocks.form import DamagedBlockError
from history.daily import days
from history.daily.canonical import Connection, Digest, Range, digest
from history.daily.day_reading import open_day
from history.daily.days import DayState
from history.failure.complaints import Complaint
from history.kinds.kind import Closed, DayRows
from history.models import ArchivedDay, DaySeal, LateRow, SealedDay, VerifiedTable
from history.partitions import state
from history.seals import day_snapshot, late_rows
from history.seals.seal import GENESIS, chained

_LATE: Final = "rows are noted as late, and no row can be late here"


def closed_fault(known: DaySeal) -> str | None:
    """What is wrong with a sealed day, whatever its rows are."""
    if LateRow.objects.filter(table=known.table, day=known.day).exists():
        return _LATE
    of_day = DaySeal.objects.filter(table=known.table, day=known.day)
    if of_day.values("digest").distinct().count() > 1:
        return "it was sealed again with other rows"
    return None


def unsealed(connection: Connection, kept: DayRows) -> Iterator[tuple[date, str]]:
    """The days without a seal that must have one, oldest first, each with what is wrong: those that
    a run of maintain had to seal, since the oldest seal or row; and those with late rows."""
    if kept.closed is None:
        return
    sealed = set(DaySeal.objects.filter(table=kept.table).values_list("day", flat=True))
    late = set(LateRow.objects.filter(table=kept.table).values_list("day", flat=True))
    filled = _first_with_rows(connection, kept)
    first = min((*sealed, *([filled] if filled else ())), default=date.max)
    end = _passed(sealed, kept.closed)
    wanted = {first + timedelta(days=number) for number in range((end - first).days)}
    for day in sorted((late | (wanted if kept.closed.seal_after else set())) - sealed):
        yield day, _LATE if day in late else "it has no seal, and a day before it has one or rows"


def _passed(sealed: Collection[date], closed: Closed) -> date:
    """The day up to which, exclusive, maintain has sealed all days."""
    run = state.latest_whole()
    if run is None:
        return max(sealed, default=date.min)
    return run.started_at.astimezone(UTC).date() - timedelta(days=closed.seal_after)


def _first_with_rows(connection: Connection, kept: DayRows) -> date | None:
    query = sql.SQL("SELECT (min({}) AT TIME ZONE 'UTC')::date FROM {}").format(
        sql.Identifier(kept.order[0]), sql.Identifier(kept.table)
    )
    row = connection.execute(query).fetchone()
    return row[0] if row else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of checking one day. rows: of the seal. late: how many rows have entered the day
    since. fault: what is wrong, None if nothing is. note: what was compared."""

    table: str
    day: date
    rows: int
    late: int
    seal: str
    fault: str | None
    note: str


def chain_fault(kept: DayRows) -> str | None:
    """The first fault in the chain of a table's seals, in the order of sealing; None if whole."""
    previous = GENESIS
    for found in DaySeal.objects.filter(table=kept.table).defer("ranges").order_by("id"):
        if found.previous != previous:
            return f"the seal before the seal of {found.day} is missing or was replaced"
        if found.seal != chained(previous, found.table, found.day, found.rows, found.digest):
            return f"the seal of {found.day} does not match its row count and digest"
        previous = found.seal
    return None


def newest_seal(kept: DayRows) -> str | None:
    """The newest seal of a table, in hex, which depends on all earlier ones; or None."""
    last = DaySeal.objects.filter(table=kept.table).order_by("-id").first()
    return last.seal if last else None


def verify(connection: Connection, kept: DayRows, day: date | None = None) -> Iterator[Verdict]:
    """Check each sealed day, or one, against its newest seal, oldest day first; then days without a
    seal that must have one.

    The digest is computed again from the rows of the day's table, without the late rows, or is that
    which the database keeps of the archived day. A day that cannot be read has that as its fault; a
    lost connection is raised. `connection` is in autocommit mode.
    """
    seals = DaySeal.objects.filter(table=kept.table)
    if day is not None:
        seals = seals.filter(day=day)
    newest = seals.order_by("day", "-id").distinct("day")
    for known in newest.iterator(chunk_size=1):
        try:
            found = _compared(connection, kept, known)
        except (psycopg.Error, DamagedBlockError) as error:
            if connection.closed:
                raise
            found = _verdict(known, 0, f"cannot be read: {describe(error)}", "not compared")
        yield found
    for missing, why in unsealed(connection, kept):
        if day in (None, missing):
            yield Verdict(kept.table, missing, 0, 0, "", why, "not compared")


class SealedDayChangedError(Complaint, RuntimeError):
    """A sealed day has other rows than its seal."""


def check(connection: Connection, kept: DayRows, day: date) -> None:
    """Compare a day with its newest seal, before it is archived, dropped or sealed again; a day
    without a seal passes. `connection` is in autocommit mode. Raises ChangedError."""
    known = DaySeal.objects.filter(table=kept.table, day=day).order_by("-id").first()
    if known is None:
        return
    if fault := _compared(connection, kept, known).fault:
        raise SealedDayChangedError(f"{kept.table} {day} is not as it was sealed: {fault}")


def check_locked(connection: Connection, kept: DayRows, day: date, place: days.DayTable) -> None:
    """Do what `check` does, in a transaction in which nobody else writes to the day.

    Raises:
        SealedDayChangedError: the day has other rows than its seal.
    """
    known = DaySeal.objects.filter(table=kept.table, day=day).order_by("-id").first()
    if known is not None and (fault := _compare(connection, kept, known, place).fault):
        raise SealedDayChangedError(f"{kept.table} {day} is not as it was sealed: {fault}")


def accept(table: str, day: date) -> None:
    """Let a day go that is not as it was sealed: its drop is not recorded as one of maintain, so
    verify() names it for good."""
    SealedDay.objects.filter(table=table, day=day).delete()


def _compared(connection: Connection, kept: DayRows, known: DaySeal) -> Verdict:
    """Compare a day; where one of several nodes seems to differ, once more in one state of all."""
    with open_day(connection, kept.table, known.day) as place:
        found = _compare(connection, kept, known, place)
    if found.fault and day_snapshot.spread(connection, kept.table):
        return day_snapshot.in_one_state(
            connection,
            kept.table,
            known.day,
            lambda place: _compare(connection, kept, known, place),
        )
    return found


def _compare(
    connection: Connection, kept: DayRows, known: DaySeal, place: days.DayTable
) -> Verdict:
    count = 0 if kept.closed else late_rows.count(connection, kept.table, known.day)
    known = _newest(connection, known)
    rest, found = Digest(), 0
    if place.state is not DayState.ABSENT and not count:
        rest = digest(connection, kept, place.child)
    elif place.state is not DayState.ABSENT:
        _, rest, found = late_rows.digests(connection, kept, known.day, place.child)
    note = "digest computed from the rows"
    fault: str | None = None
    if (rest.finish(), rest.rows) != (known.digest, known.rows):
        fault = _difference(msgspec.convert(known.ranges, list[Range]), rest, known)
        if not rest.rows and place.comment != days.RESTORED:
            fault, note = _compare_dropped(kept, known, fault)
    if count > found:
        missing = f"{count - found} of {counted(count, 'late row')} missing or changed"
        fault = f"{fault}; {missing}" if fault else missing
    if kept.closed:
        fault = fault or closed_fault(known)
    return _verdict(known, count, fault, note)


def _newest(connection: Connection, known: DaySeal) -> DaySeal:
    """Return the newest seal of the day in this transaction's snapshot.

    A day may have been sealed again since `known` was read: then its late rows are of that seal.
    """
    row = connection.execute(
        'SELECT max(id) FROM day_seal WHERE "table" = %s AND day = %s', [known.table, known.day]
    ).fetchone()
    if row is None or row[0] in (None, known.id):
        return known
    return DaySeal.objects.get(id=row[0])


def _verdict(known: DaySeal, late: int, fault: str | None, note: str) -> Verdict:
    return Verdict(known.table, known.day, known.rows, late, known.seal, fault, note)


def _compare_dropped(kept: DayRows, known: DaySeal, otherwise: str) -> tuple[str | None, str]:
    """Fault and note for a seal of which the table has no row. otherwise: the fault if the day was
    neither archived nor dropped by maintain."""
    archived = ArchivedDay.objects.filter(table=known.table, day=known.day).first()
    if archived and archived.digest == known.digest:
        return None, "archived; the digests are equal"
    if archived:
        return "the archived rows are not the sealed rows", "archived"
    dropped = SealedDay.objects.filter(
        table=known.table, day=known.day, dropped_at__isnull=False
    ).exists()
    kept_days = timedelta(days=kept.closed.kept_days if kept.closed else 0)
    if dropped and kept.closed and known.day >= clock.now().date() - kept_days:
        return "it was dropped before its retention was over", "dropped, not archived"
    return (None, "dropped, not archived") if dropped else (otherwise, "not archived")


def _difference(sealed: list[Range], found: Digest, known: DaySeal) -> str:
    """The first range of rows that differs from the sealed one."""
    change = found.rows - known.rows
    count = f", {counted(abs(change), 'row')} {'more' if change > 0 else 'fewer'}" if change else ""
    begin = 0
    for old, new in zip(sealed, found.ranges, strict=False):
        if old != new:
            return (
                f"rows {begin + 1} to {begin + old.rows} differ, between {_key(old.first)} and"
                f" {_key(old.last)}{count}"
            )
        begin += old.rows
    if len(sealed) < len(found.ranges):
        first = _key(found.ranges[len(sealed)].first)
        return f"rows after row {begin} are new, from {first}{count}"
    if len(sealed) > len(found.ranges):
        first = _key(sealed[len(found.ranges)].first)
        return f"rows from row {begin + 1} on are missing, from {first}{count}"
    return f"the ranges of the seal do not match its digest{count}"


def _key(place: tuple[str, int]) -> str:
    return f"{place[0]} v{place[1]}"


def note(table: str, started_at: datetime, days: int, faults: int) -> None:
    """Record a check of all sealed days of a table."""
    VerifiedTable.objects.update_or_create(
        table=table, defaults={"started_at": started_at, "days": days, "faults": faults}
    )


def latest() -> Iterator[tuple[str, datetime, int | None]]:
    """The latest complete check of each table that has seals, or had some when it was checked:
    table, when it began, and faults, which are days that differ, and one more if the chain is
    broken. Before the first check: the time of the first seal, and None."""
    checked = {found.table: found for found in VerifiedTable.objects.all()}
    sealed = DaySeal.objects.values("table").annotate(first=Min("sealed_at")).order_by("table")
    for found in sealed:
        if found["table"] not in checked:
            yield found["table"], found["first"], None
    for table, check in checked.items():
        yield table, check.started_at, check.faults
