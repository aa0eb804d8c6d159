"""Sealing: which days are due, and the seal of one day.

A seal is a digest of the rows of a day, chained to the previous seal of the table.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Final, NamedTuple

import msgspec
from django.db import connection as default_connection
from psycopg import Error, sql
from psycopg.types.json import Jsonb

from history.common import clock
from history.common.complaints import ExplainedError
from history.common.text_tables import pluralize
from history.kinds.entities import EntityKind
from history.kinds.kind import DayRows
from history.models import ArchivedDay, DaySeal
from history.retention.catalog import Partition, find_filled
from history.retention.run_lock import retake_lost_lock
from history.retention.seals import day_snapshot, late_rows
from history.store.days import days, doubled_versions
from history.store.days.canonical import Connection, DayDigest, compute_digest
from history.store.days.days import DayState

GENESIS = "0" * 64
# No younger day is sealed or packed: its rows may still be on their way, and a clock may be wrong.
YOUNGEST_DAYS = 2


# Given days (table and day): those that may still get rows, and why.
FindUnsettledDays = Callable[[Collection[tuple[str, date]]], Mapping[tuple[str, date], str]]

# The last seal of a table.
_SELECT_LAST_SEAL: Final = """
SELECT seal FROM day_seal WHERE "table" = %(table)s ORDER BY id DESC LIMIT 1
"""
# A new last seal of a table.
_INSERT_SEAL: Final = """
INSERT INTO day_seal ("table", day, rows, digest, ranges, previous, seal, sealed_at)
VALUES (%(table)s, %(day)s, %(rows)s, %(digest)s, %(ranges)s, %(previous)s, %(seal)s, %(sealed_at)s)
"""


class NotSealableError(ExplainedError, RuntimeError):
    """Raised when a day cannot be sealed; the text says why."""


class DaysToSeal(NamedTuple):
    """The finished days without a seal."""

    due: list[tuple[DayRows, date]]  # to be sealed now, oldest first for each table
    waiting: Mapping[tuple[str, date], str]  # days (table and day) that may still get rows, and why


class SealAttempt(NamedTuple):
    """A day that was to be sealed."""

    rows: DayRows
    day: date
    error: Exception | None  # why it was not sealed


def find_days_to_seal(
    existing: Collection[Partition],
    today: date,
    after_days: int,
    unsettled: FindUnsettledDays,
    tables: Sequence[DayRows],
) -> DaysToSeal:
    """Find the attached days with rows that are finished and have no seal.

    Days of tables that get no row afterwards are sealed without rows too. Archived days are not.

    Args:
        existing: the partitions of `tables`.
        after_days: a day is finished this many days after its end; 0: no day is sealed.
        unsettled: is called with the days to be sealed; those that it returns wait.
    """
    if not after_days:
        return DaysToSeal([], {})
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
    due = sorted(filled - waiting.keys(), key=lambda place: (order.index(place[0]), place[1]))
    return DaysToSeal([(by_name[table], day) for table, day in due], waiting)


def seal_days(places: Sequence[tuple[DayRows, date]]) -> Iterator[SealAttempt]:
    """Seal the days one by one; a day that fails stops no other.

    The caller holds the lock of the runs, which is taken again when the connection is lost.
    """
    default_connection.ensure_connection()
    for rows, day in places:
        try:
            seal_day(default_connection.connection, rows, day)
        except (ExplainedError, Error) as error:
            yield SealAttempt(rows, day, error)
            retake_lost_lock()
        else:
            yield SealAttempt(rows, day, None)


def seal_day(connection: Connection, day_rows: DayRows, day: date) -> DaySeal:
    """Seal a day of one table in its present state, with late rows.

    The caller holds the lock of the runs. `connection` is in autocommit mode.

    Raises:
        NotSealableError: the day is not finished by this machine's and the server's clock, has no
            rows though some may come, has rows that are only in the archive, or has a version
            twice.
        psycopg.errors.LockNotAvailable: a transaction that writes to the day stays open.
    """
    if day > clock.get_earlier_time(connection).date() - timedelta(days=YOUNGEST_DAYS):
        raise NotSealableError(
            f"{day_rows.table} {day} is not finished: it ended less than a day ago"
        )
    place = days.locate_day(connection, day_rows.table, day)
    if place.state is not DayState.ATTACHED:
        raise NotSealableError(f"{day_rows.table} has no partition of {day}")
    day_snapshot.start_noting(connection, place, day_rows.table, day)
    _vacuum_day(connection, place)

    def add_seal_of_day(opened: days.DayTable) -> str:
        _check_doubled(connection, day_rows, day, opened)
        day_digest = compute_digest(connection, day_rows, opened.child)
        if not day_rows.closed:
            _check_rows(day_rows.table, day, day_digest.rows)
        new_seal = add_seal(connection, day_rows.table, day, day_digest)
        late_rows.include_late_rows(connection, day_rows.table, day)
        return new_seal

    new_seal = day_snapshot.run_in_one_state(connection, day_rows.table, day, add_seal_of_day)
    return DaySeal.objects.get(seal=new_seal)


def _check_doubled(
    connection: Connection, day_rows: DayRows, day: date, place: days.DayTable
) -> None:
    """Raise NotSealable if the day has two rows for one version."""
    if not isinstance(day_rows, EntityKind) or not days.is_packed(connection, day_rows.table, day):
        return  # the primary key forbids it
    doubled = doubled_versions.find_doubled_versions(connection, day_rows, place.child, limit=1)
    if doubled:
        raise NotSealableError(
            f"{day_rows.table} {day} has version {doubled[0].version} of "
            f"{doubled[0].id} twice: run"
            f" `partitions repair {day}`"
        )


def compute_seal(previous: str, table: str, day: date, rows: int, digest: str) -> str:
    """Compute a seal in hex: the SHA-256 of the previous seal and what is sealed."""
    line = f"{previous} {table} {day.isoformat()} {rows} {digest}\n"
    return hashlib.sha256(line.encode()).hexdigest()


def _check_rows(table: str, day: date, rows: int) -> None:
    if not rows:
        raise NotSealableError(f"{table} {day} has no rows, so there is nothing to seal")
    archived = ArchivedDay.objects.filter(table=table, day=day).first()
    if archived and archived.rows > rows:
        raise NotSealableError(
            f"{table} {day} has {pluralize(rows, 'row')}, and the archive has "
            f"{archived.rows} of that day"
        )


def add_seal(connection: Connection, table: str, day: date, day_digest: DayDigest) -> str:
    """Add a seal to the chain of the table, in the caller's transaction, and return it.

    The caller holds the lock of the runs.
    """
    digest_hex = day_digest.finish()
    row = connection.execute(_SELECT_LAST_SEAL, {"table": table}).fetchone()
    previous = row[0] if row else GENESIS
    new_seal = compute_seal(previous, table, day, day_digest.rows, digest_hex)
    values = {
        "table": table,
        "day": day,
        "rows": day_digest.rows,
        "digest": digest_hex,
        "ranges": Jsonb(msgspec.to_builtins(day_digest.ranges)),
        "previous": previous,
        "seal": new_seal,
        "sealed_at": clock.now(),
    }
    connection.execute(_INSERT_SEAL, values)
    return new_seal


def _vacuum_day(connection: Connection, place: days.DayTable) -> None:
    """Run VACUUM (FREEZE) once, except on a locked table. A finished day is rarely written to."""
    connection.execute(
        sql.SQL("VACUUM (FREEZE, ANALYZE, SKIP_LOCKED, TRUNCATE false) {}").format(place.child)
    )
