"""Sealing a day: a digest of its rows, chained to the previous seal of the table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import date, timedelta

import msgspec
from psycopg import sql

from history import clock, days
from history.canonical import Connection, digest
from history.days import State
from history.entities import ENTITIES, Entity
from history.models import DaySeal
from history.partitions.catalog import Partition

GENESIS = "0" * 64


def seal(connection: Connection, entity: Entity, day: date) -> DaySeal:
    """Seal a day of one table in its present state. A sealed day gets one more seal.

    The caller holds the lock of maintain's runs: without it two runs could fork the chain. Raises
    LookupError if the table has no partition of that day.
    """
    place = days.locate(connection, entity.table, day)
    if place.state is not State.ATTACHED:
        raise LookupError(f"{entity.table} has no partition of {day}")
    _freeze(connection, place)
    found = digest(connection, entity, place.child)
    rows, whole = found.rows, found.finish()
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


def due(existing: list[Partition], today: date, after_days: int) -> Iterator[tuple[Entity, date]]:
    """The attached days that are finished and have no seal, oldest first for each table.

    after_days: a day is finished this many days after its end; 0: no day is sealed.
    """
    if not after_days:
        return
    finished = today - timedelta(days=after_days)
    sealed = set(DaySeal.objects.values_list("table", "day"))
    for entity in ENTITIES:
        mine = [part for part in existing if part.table == entity.table]
        for day in sorted(part.day for part in mine if part.day and part.state is State.ATTACHED):
            if day < finished and (entity.table, day) not in sealed:
                yield entity, day


def _freeze(connection: Connection, place: days.DayTable) -> None:
    """Run VACUUM (FREEZE) once, except on a locked table. A finished day is rarely written to, so
    PostgreSQL then needs no forced vacuum against wraparound, which could start at a busy hour."""
    connection.execute(
        sql.SQL("VACUUM (FREEZE, ANALYZE, SKIP_LOCKED, TRUNCATE false) {}").format(place.child)
    )
