"""Late rows: rows that entered a sealed day after its seal. The next seal includes them."""

import time
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import NamedTuple

from psycopg import errors, sql

from history.kinds.entities import EntityKind
from history.kinds.kind import DayRows
from history.models import LateRow
from history.store.days import day_locks, days
from history.store.days.canonical import (
    Connection,
    DayDigest,
    build_encoding,
    stream_hashes,
)

PAUSE_S = 0.05


class DayDigests(NamedTuple):
    """Two digests of one day: of all its rows, and without its late rows."""

    all_rows: DayDigest
    without_late: DayDigest
    late_count: int  # how many of the noted late rows the table has


# Autovacuum can hold a lock for minutes. It is left out: it writes no rows, and PostgreSQL cancels
# it for whoever waits a second for its lock. Its processes have no user. A prepared transaction has
# no process.
_HOLDERS_OF_LOCKS = """
SELECT virtualtransaction FROM pg_locks LEFT JOIN pg_stat_activity AS activity USING (pid)
WHERE locktype = 'relation' AND relation = ANY(%s::regclass[]) AND mode LIKE %s AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND pid IS DISTINCT FROM pg_backend_pid() AND (pid IS NULL OR usesysid IS NOT NULL)
"""

# Every transaction holds a lock on its virtual id. Each login may see this lock, but not each login
# may see other properties of the transaction.
_TRANSACTIONS = """
SELECT virtualxid FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'virtualxid' AND granted AND virtualxid = virtualtransaction
    AND datname = current_database() AND usesysid IS NOT NULL AND pid <> pg_backend_pid()
"""

_NOTED = """
SELECT DISTINCT row_hash FROM late_row WHERE "table" = %s AND day = %s AND NOT sealed
"""

# Days with notes about late rows that have neither a table nor an archive.
_SELECT_DROPPED_DAYS = """
SELECT "table", day FROM (SELECT DISTINCT "table", day FROM late_row) AS days
WHERE to_regclass("table" || to_char(day, '_YYYYMMDD')) IS NULL AND NOT EXISTS (
    SELECT FROM archived_day AS kept WHERE kept."table" = days."table" AND kept.day = days.day)
"""
_DELETE_NOTES = """
DELETE FROM late_row WHERE "table" = %s AND day = %s AND to_regclass(%s) IS NULL
"""


def mark_sealed_day(connection: Connection, table: str, day: date) -> None:
    """Mark a day, so that writers note the message of each row that they add to it from now on."""
    connection.execute(
        'INSERT INTO sealed_day ("table", day) VALUES (%s, %s)'
        ' ON CONFLICT ("table", day) DO UPDATE SET dropped_at = NULL',
        [table, day],
    )


def wait_for_others(
    connection: Connection, tables: Sequence[sql.Identifier], mode: str = "%"
) -> None:
    """Wait for the end of all transactions of other sessions that hold a lock on these tables.

    Does not wait for transactions that take a lock after the call, and not for autovacuum.

    Args:
        mode: The mode of the lock, as a pattern of LIKE.

    Raises:
        psycopg.errors.LockNotAvailable: One of these transactions did not end within LOCK_WAIT_S.
    """
    deadline = time.monotonic() + day_locks.LOCK_WAIT_S
    names = [table.as_string(connection) for table in tables]
    values = [names, mode]
    transactions = set(connection.execute(_HOLDERS_OF_LOCKS, values))
    while transactions:
        if time.monotonic() > deadline:
            raise errors.LockNotAvailable(
                f"a transaction that uses {', '.join(names)} stays open after "
                f"{day_locks.LOCK_WAIT_S:g} s: end it (see pg_stat_activity), or try again"
            )
        time.sleep(PAUSE_S)
        transactions &= set(connection.execute(_HOLDERS_OF_LOCKS, values))


def wait_for_transactions(connection: Connection) -> None:
    """Wait for the end of all open transactions of other sessions in this database.

    Does not wait for transactions that begin after the call, and not for autovacuum or prepared
    transactions.

    Raises:
        psycopg.errors.LockNotAvailable: One of these transactions did not end within LOCK_WAIT_S.
    """
    deadline = time.monotonic() + day_locks.LOCK_WAIT_S
    transactions = set(connection.execute(_TRANSACTIONS))
    while transactions:
        if time.monotonic() > deadline:
            raise errors.LockNotAvailable(
                f"a transaction of this database stays open after {day_locks.LOCK_WAIT_S:g} s: "
                "end it (see pg_stat_activity), or try again"
            )
        time.sleep(PAUSE_S)
        transactions &= set(connection.execute(_TRANSACTIONS))


def count_late_rows(connection: Connection, table: str, day: date) -> int:
    """Return how many rows have entered the day since its newest seal."""
    row = connection.execute(
        "SELECT count(DISTINCT row_hash) FROM late_row"
        ' WHERE "table" = %s AND day = %s AND NOT sealed',
        [table, day],
    ).fetchone()
    return int(row[0]) if row else 0


def count_late_rows_since(table: str, day: date, moment: datetime) -> int:
    """Return how many late rows have entered the day since a moment."""
    return LateRow.objects.filter(table=table, day=day, noted_at__gt=moment).count()


def include_late_rows(connection: Connection, table: str, day: date) -> None:
    """Record that the newest seal includes the late rows of the day."""
    connection.execute(
        'UPDATE late_row SET sealed = true WHERE "table" = %s AND day = %s AND NOT sealed',
        [table, day],
    )


def compute_digests(
    connection: Connection, day_rows: DayRows, day: date, source: sql.Composable
) -> DayDigests:
    """Compute the digests of the rows of a day's table, with and without the late rows."""
    late_hashes = {
        bytes(late_hash) for (late_hash,) in connection.execute(_NOTED, [day_rows.table, day])
    }
    all_rows, without_late, late_count = DayDigest(), DayDigest(), 0
    for id_, version, row_hash in stream_hashes(connection, day_rows, source):
        all_rows.add(id_, version, row_hash)
        if row_hash in late_hashes:
            late_count += 1
        else:
            without_late.add(id_, version, row_hash)
    return DayDigests(all_rows, without_late, late_count)


def forget_archived_rows(
    connection: Connection, entity: EntityKind, day: date, archived: sql.Composable, digest: str
) -> None:
    """Delete the notes about those late rows of a restored day that are in the archive.

    Does nothing unless `digest` equals the digest in the newest seal of the day. If the two digests
    are equal, the seal includes exactly the archived rows, so none of these rows is late any more.

    Args:
        archived: A table with the archived rows.
        digest: The digest of the archived rows.
    """
    newest = connection.execute(
        'SELECT digest FROM day_seal WHERE "table" = %s AND day = %s ORDER BY id DESC LIMIT 1',
        [entity.table, day],
    ).fetchone()
    if newest is None or newest[0] != digest:
        return
    noted = sql.SQL('"table" = {} AND day = {} AND NOT sealed').format(
        sql.Literal(entity.table), sql.Literal(day)
    )
    connection.execute(
        sql.SQL(
            "DELETE FROM late_row WHERE {noted} AND row_hash IN (SELECT sha256({encoded})"
            " FROM {archived} WHERE (id, version) IN ("
            "SELECT known.row_id, known.version FROM late_row AS known WHERE {noted}))"
        ).format(noted=noted, encoded=build_encoding(entity), archived=archived)
    )


def forget_removed_rows(
    connection: Connection, table: str, day: date, repeats: Mapping[bytes, int]
) -> None:
    """Delete the notes about late rows that were removed because an equal row exists.

    Equal rows have the same hash. If a hash has more notes than removed rows, one of the notes
    might be about the row that stays. Then all notes with this hash are kept.

    Args:
        repeats: How many rows were removed, by their hash.
    """
    for row_hash, number in repeats.items():
        connection.execute(
            'DELETE FROM late_row WHERE "table" = %(table)s AND day = %(day)s AND NOT sealed'
            " AND row_hash = %(hash)s AND (SELECT count(*) FROM late_row AS noted"
            ' WHERE noted."table" = %(table)s AND noted.day = %(day)s AND NOT noted.sealed'
            " AND noted.row_hash = %(hash)s) <= %(number)s",
            {"table": table, "day": day, "hash": row_hash, "number": number},
        )


def forget_dropped_days(connection: Connection) -> None:
    """Delete the notes about late rows of days that are neither in a table nor in the archive."""
    # Two statements, because Citus refuses a DELETE that depends on a table of the coordinator.
    for table, day in connection.execute(_SELECT_DROPPED_DAYS).fetchall():
        connection.execute(_DELETE_NOTES, [table, day, days.build_partition_name(table, day)])
