"""Sealing a day: a digest of its rows, chained to the previous seal of the table."""

import hashlib
from datetime import date, timedelta

import msgspec
from psycopg import sql
from psycopg.types.json import Jsonb

from history.common import clock
from history.common.complaints import ExplainedError
from history.common.text_tables import pluralize
from history.kinds.entities import EntityKind
from history.kinds.kind import DayRows
from history.models import ArchivedDay, DaySeal
from history.retention.seals import day_snapshot, late_rows
from history.store.days import days, doubled_versions
from history.store.days.canonical import Connection, DayDigest, compute_digest
from history.store.days.days import DayState

GENESIS = "0" * 64
# No younger day is sealed or packed: its rows may still be on their way, and a clock may be wrong.
YOUNGEST_DAYS = 2


class NotSealableError(ExplainedError, RuntimeError):
    """Raised when a day cannot be sealed; the text says why."""


def seal_day(connection: Connection, day_rows: DayRows, day: date) -> DaySeal:
    """Seal a day of one table in its present state, with late rows. The caller holds the lock of
    maintain's runs. `connection` is in autocommit mode. Raises NotSealable if the day is not
    finished by this machine's and the server's clock, has no rows though some may come, has rows
    that are only in the archive, or has a version twice;
    psycopg.errors.LockNotAvailable if a transaction that writes to the day stays open."""
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
    """Add a seal to the chain of the table, in the caller's transaction. Returns it. The caller
    holds the lock of maintain's runs."""
    digest_hex = day_digest.finish()
    row = connection.execute(
        'SELECT seal FROM day_seal WHERE "table" = %s ORDER BY id DESC LIMIT 1', [table]
    ).fetchone()
    previous = row[0] if row else GENESIS
    new_seal = compute_seal(previous, table, day, day_digest.rows, digest_hex)
    connection.execute(
        'INSERT INTO day_seal ("table", day, rows, digest, ranges, previous, seal, sealed_at)'
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
        [
            *(table, day, day_digest.rows, digest_hex),
            *(Jsonb(msgspec.to_builtins(day_digest.ranges)), previous, new_seal, clock.now()),
        ],
    )
    return new_seal


def _vacuum_day(connection: Connection, place: days.DayTable) -> None:
    """Run VACUUM (FREEZE) once, except on a locked table. A finished day is rarely written to."""
    connection.execute(
        sql.SQL("VACUUM (FREEZE, ANALYZE, SKIP_LOCKED, TRUNCATE false) {}").format(place.child)
    )
