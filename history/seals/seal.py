"""Sealing a day: a digest of its rows, chained to the previous seal of the table."""

import hashlib
from datetime import date, timedelta

import msgspec
from psycopg import sql
from psycopg.types.json import Jsonb

from history.base import clock
from history.base.table import counted
from history.daily import days, doubled
from history.daily.canonical import Connection, Digest, digest
from history.daily.days import DayState
from history.entities import Entity
from history.failure.complaints import Complaint
from history.kinds.kind import DayRows
from history.models import ArchivedDay, DaySeal
from history.seals import day_snapshot, late_rows

GENESIS = "0" * 64
# No younger day is sealed or packed: its rows may still be on their way, and a clock may be wrong.
YOUNGEST_DAYS = 2


class NotSealable(Complaint, RuntimeError):
    """A day that cannot be sealed; the text says why."""


def seal(connection: Connection, kept: DayRows, day: date) -> DaySeal:
    """Seal a day of one table in its present state, with late rows. The caller holds the lock of
    maintain's runs. `connection` is in autocommit mode. Raises NotSealable if the day is not
    finished by this machine's and the server's clock, has no rows though some may come, has rows
    that are only in the archive, or has a version twice;
    psycopg.errors.LockNotAvailable if a transaction that writes to the day stays open."""
    if day > clock.earlier(connection).date() - timedelta(days=YOUNGEST_DAYS):
        raise NotSealable(f"{kept.table} {day} is not finished: it ended less than a day ago")
    place = days.locate(connection, kept.table, day)
    if place.state is not DayState.ATTACHED:
        raise NotSealable(f"{kept.table} has no partition of {day}")
    day_snapshot.announce(connection, place, kept.table, day)
    _freeze(connection, place)

    def work(opened: days.DayTable) -> str:
        _check_doubled(connection, kept, day, opened)
        found = digest(connection, kept, opened.child)
        if not kept.closed:
            _check_rows(kept.table, day, found.rows)
        made = add(connection, kept.table, day, found)
        late_rows.include(connection, kept.table, day)
        return made

    made = day_snapshot.in_one_state(connection, kept.table, day, work)
    return DaySeal.objects.get(seal=made)


def _check_doubled(connection: Connection, kept: DayRows, day: date, place: days.DayTable) -> None:
    """Raise NotSealable if the day has two rows for one version."""
    if not isinstance(kept, Entity) or not days.is_packed(connection, kept.table, day):
        return  # the primary key forbids it
    twice = doubled.find(connection, kept, place.child, most=1)
    if twice:
        raise NotSealable(
            f"{kept.table} {day} has version {twice[0].version} of {twice[0].id} twice: run"
            f" `partitions repair {day}`"
        )


def chained(previous: str, table: str, day: date, rows: int, digest: str) -> str:
    """The seal, in hex: SHA-256 of one line with the previous seal and what is sealed."""
    line = f"{previous} {table} {day.isoformat()} {rows} {digest}\n"
    return hashlib.sha256(line.encode()).hexdigest()


def _check_rows(table: str, day: date, rows: int) -> None:
    if not rows:
        raise NotSealable(f"{table} {day} has no rows, so there is nothing to seal")
    archived = ArchivedDay.objects.filter(table=table, day=day).first()
    if archived and archived.rows > rows:
        raise NotSealable(
            f"{table} {day} has {counted(rows, 'row')}, and the archive has "
            f"{archived.rows} of that day"
        )


def add(connection: Connection, table: str, day: date, found: Digest) -> str:
    """Add a seal to the chain of the table, in the caller's transaction. Returns it. The caller
    holds the lock of maintain's runs."""
    whole = found.finish()
    row = connection.execute(
        'SELECT seal FROM day_seal WHERE "table" = %s ORDER BY id DESC LIMIT 1', [table]
    ).fetchone()
    previous = row[0] if row else GENESIS
    made = chained(previous, table, day, found.rows, whole)
    connection.execute(
        'INSERT INTO day_seal ("table", day, rows, digest, ranges, previous, seal, sealed_at)'
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
        [
            *(table, day, found.rows, whole),
            *(Jsonb(msgspec.to_builtins(found.ranges)), previous, made, clock.now()),
        ],
    )
    return made


def _freeze(connection: Connection, place: days.DayTable) -> None:
    """Run VACUUM (FREEZE) once, except on a locked table. A finished day is rarely written to."""
    connection.execute(
        sql.SQL("VACUUM (FREEZE, ANALYZE, SKIP_LOCKED, TRUNCATE false) {}").format(place.child)
    )
