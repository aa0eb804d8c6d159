"""Sealing a day: a digest of its rows, chained to the previous seal of the table."""

from __future__ import annotations

import hashlib
from datetime import date, timedelta

import msgspec
from psycopg import sql

from history import clock, days
from history.canonical import Connection, digest
from history.days import State
from history.entities import Entity
from history.models import DaySeal

GENESIS = "0" * 64
# No day is sealed that is younger than this. Writers look for sealed days only where a row is of
# an earlier day than today, and their clock may differ from ours.
YOUNGEST_DAYS = 2


class NotSealable(RuntimeError):
    """A day that cannot be sealed; the text says why."""


def seal(connection: Connection, entity: Entity, day: date) -> DaySeal:
    """Seal a day of one table in its present state. A sealed day gets one more seal.

    The caller holds the lock of maintain's runs: without it two runs could fork the chain. Raises
    NotSealable if the day is not finished or has no rows.
    """
    if day > clock.now().date() - timedelta(days=YOUNGEST_DAYS):
        raise NotSealable(f"{entity.table} {day} is not finished: it ended less than a day ago")
    place = days.locate(connection, entity.table, day)
    if place.state is not State.ATTACHED:
        raise NotSealable(f"{entity.table} has no partition of {day}")
    _freeze(connection, place)
    found = digest(connection, entity, place.child)
    rows, whole = found.rows, found.finish()
    if not rows:
        raise NotSealable(f"{entity.table} {day} has no rows, so there is nothing to seal")
    last = DaySeal.objects.filter(table=entity.table).order_by("-id").first()
    previous = last.seal if last else GENESIS
    return DaySeal.objects.create(
        table=entity.table,
        day=day,
        rows=rows,
        digest=whole,
        ranges=msgspec.to_builtins(found.ranges),
        previous=previous,
        seal=chained(previous, entity.table, day, rows, whole),
        sealed_at=clock.now(),
    )


def chained(previous: str, table: str, day: date, rows: int, digest: str) -> str:
    """The seal, in hex: SHA-256 of one line with the previous seal and what is sealed."""
    line = f"{previous} {table} {day.isoformat()} {rows} {digest}\n"
    return hashlib.sha256(line.encode()).hexdigest()


def _freeze(connection: Connection, place: days.DayTable) -> None:
    """Run VACUUM (FREEZE) once, except on a locked table. A finished day is rarely written to, so
    PostgreSQL then needs no forced vacuum against wraparound, which could start at a busy hour."""
    connection.execute(
        sql.SQL("VACUUM (FREEZE, ANALYZE, SKIP_LOCKED, TRUNCATE false) {}").format(place.child)
    )
