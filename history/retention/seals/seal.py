"""Seals finished days: finds the days that are due, and seals each of them.

Begin with `seal_day`. A seal is a digest of the rows of a day, chained to the previous seal of the
table.
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
from history.common.explained_errors import ExplainedError
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

# Stands in the first seal of a table in place of the previous seal.
GENESIS = "0" * 64
# A day can be sealed from this many days after its beginning, and packed one day later. Until then
# its rows may still be on their way, and a clock may be wrong.
YOUNGEST_DAYS = 2


# Called with days (table and day). Returns the days that may still get rows, each with the reason.
FindWaitingDays = Callable[[Collection[tuple[str, date]]], Mapping[tuple[str, date], str]]

# Returns the newest seal of a table.
_SELECT_LAST_SEAL: Final = """
SELECT seal FROM day_seal WHERE "table" = %(table)s ORDER BY id DESC LIMIT 1
"""
# Adds a seal to the chain of a table.
_INSERT_SEAL: Final = """
INSERT INTO day_seal ("table", day, rows, digest, ranges, previous, seal, sealed_at)
VALUES (%(table)s, %(day)s, %(rows)s, %(digest)s, %(ranges)s, %(previous)s, %(seal)s, %(sealed_at)s)
"""


class NotSealableError(ExplainedError, RuntimeError):
    """Raised when a day cannot be sealed. The message says why."""


class DaysToSeal(NamedTuple):
    """The finished days without a seal."""

    # the days to seal now, by table, the oldest day of each table first
    due: list[tuple[DayRows, date]]
    # the days (table and day) that may still get rows, and the reason
    waiting: Mapping[tuple[str, date], str]


class SealAttempt(NamedTuple):
    """The result of an attempt to seal one day."""

    day_rows: DayRows
    day: date
    error: Exception | None  # None if the day was sealed


def find_days_to_seal(
    existing: Collection[Partition],
    today: date,
    after_days: int,
    find_waiting: FindWaitingDays,
    tables: Sequence[DayRows],
) -> DaysToSeal:
    """Return the finished days that have neither a seal nor an archive.

    A day without rows is returned only if the table never gets rows after the end of a day. In
    other tables a day without rows is left out.

    Args:
        existing: The partitions of `tables`.
        after_days: How many days after its end a day is finished. 0: no day is sealed.
        find_waiting: Finds the days that can still get rows. These days are not sealed yet.
    """
    if not after_days:
        return DaysToSeal([], {})
    end = today - timedelta(days=after_days)
    sealed_or_archived = set(DaySeal.objects.values_list("table", "day"))
    sealed_or_archived |= set(ArchivedDay.objects.values_list("table", "day"))
    names = {
        (partition.table, partition.day): partition.name
        for partition in existing
        if partition.day and partition.day < end and partition.state is DayState.ATTACHED
        if (partition.table, partition.day) not in sealed_or_archived
    }
    filled_names = find_filled(list(names.values()))
    tables_by_name = {table.table: table for table in tables}
    unsealed = {
        (table, day)
        for (table, day), name in names.items()
        if name in filled_names or tables_by_name[table].closing
    }
    waiting = find_waiting(unsealed)
    order = list(tables_by_name)
    due = sorted(
        unsealed - waiting.keys(), key=lambda table_day: (order.index(table_day[0]), table_day[1])
    )
    return DaysToSeal([(tables_by_name[table], day) for table, day in due], waiting)


def seal_days(table_days: Sequence[tuple[DayRows, date]]) -> Iterator[SealAttempt]:
    """Seal days one by one, and yield the result of each. A failed day does not stop the others.

    Needs the run lock. If a connection is lost, the lock is taken again.
    """
    default_connection.ensure_connection()
    for day_rows, day in table_days:
        try:
            seal_day(default_connection.connection, day_rows, day)
        except (ExplainedError, Error) as error:
            yield SealAttempt(day_rows, day, error)
            retake_lost_lock()
        else:
            yield SealAttempt(day_rows, day, None)


def seal_day(connection: Connection, day_rows: DayRows, day: date) -> DaySeal:
    """Seal a day of one table as it is now, late rows included.

    Needs the run lock, and a `connection` in autocommit mode.

    Raises:
        NotSealableError: The day is too young by the clock of this machine or of the server, has
            no partition, has no rows yet, has fewer rows than the archive, or has a version twice.
        psycopg.errors.LockNotAvailable: A transaction that writes to the day stays open.
    """
    first_date = day + timedelta(days=YOUNGEST_DAYS)
    if clock.get_earlier_time(connection).date() < first_date:
        raise NotSealableError(
            f"{day_rows.table} {day} cannot be sealed before {first_date} (UTC): until then rows"
            " of the day may still arrive"
        )
    day_table = days.locate_day(connection, day_rows.table, day)
    if day_table.state is not DayState.ATTACHED:
        raise NotSealableError(f"{day_rows.table} has no partition of {day}")
    day_snapshot.start_noting(connection, day_table, day_rows.table, day)
    _vacuum_day(connection, day_table)

    def add_seal_of_day(opened: days.DayTable) -> str:
        _check_doubled(connection, day_rows, day, opened)
        day_digest = compute_digest(connection, day_rows, opened.child)
        if not day_rows.closing:
            _check_rows(day_rows.table, day, day_digest.rows)
        new_seal = add_seal(connection, day_rows.table, day, day_digest)
        late_rows.include_late_rows(connection, day_rows.table, day)
        return new_seal

    new_seal = day_snapshot.run_in_one_state(connection, day_rows.table, day, add_seal_of_day)
    return DaySeal.objects.get(seal=new_seal)


def _vacuum_day(connection: Connection, day_table: days.DayTable) -> None:
    """Freeze the rows of a finished day, which rarely changes again. Skip a locked table."""
    connection.execute(
        sql.SQL("VACUUM (FREEZE, ANALYZE, SKIP_LOCKED, TRUNCATE false) {}").format(day_table.child)
    )


def _check_doubled(
    connection: Connection, day_rows: DayRows, day: date, day_table: days.DayTable
) -> None:
    """Check that the day has each version once.

    Raises:
        NotSealableError: The day has two rows for one version.
    """
    if not isinstance(day_rows, EntityKind) or not days.is_packed(connection, day_rows.table, day):
        return  # the primary key refuses a second row, except for versions in blocks
    doubled = doubled_versions.find_doubled_versions(connection, day_rows, day_table.child, limit=1)
    if doubled:
        raise NotSealableError(
            f"{day_rows.table} {day} has version {doubled[0].version} of {doubled[0].id} twice:"
            f" run `partitions repair {day}`"
        )


def _check_rows(table: str, day: date, rows: int) -> None:
    """Check that the day has rows, and not fewer than the archive.

    Raises:
        NotSealableError: The day has no rows, or fewer than the archive.
    """
    if not rows:
        raise NotSealableError(f"{table} {day} has no rows, so there is nothing to seal")
    archived = ArchivedDay.objects.filter(table=table, day=day).first()
    if archived and archived.rows > rows:
        raise NotSealableError(
            f"{table} {day} has {pluralize(rows, 'row')}, and the archive has "
            f"{archived.rows} of that day"
        )


def add_seal(connection: Connection, table: str, day: date, day_digest: DayDigest) -> str:
    """Add a seal to the chain of the table, and return the seal.

    Runs in the caller's transaction. Needs the run lock.
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


def compute_seal(previous: str, table: str, day: date, rows: int, digest: str) -> str:
    """Return the seal of a day: the SHA-256, in hex, of the arguments.

    Args:
        previous: The previous seal of the table.
        rows: The number of rows.
        digest: The digest of the rows, in hex.
    """
    line = f"{previous} {table} {day.isoformat()} {rows} {digest}\n"
    return hashlib.sha256(line.encode()).hexdigest()
