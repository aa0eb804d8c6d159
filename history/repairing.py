"""Repairing a packed day that has versions twice: each stays once, and nothing is lost.

Earlier releases could store a version again that a block had. The content that was stored first
stays: that of the block. A second row with an equal content goes; another content goes into the
table doubled_version and is named. The documents that are repaired become plain rows. A sealed day
gets a new seal, in the same transaction. It may have been sealed before its versions came again:
then it must be as it was sealed once each version is there once.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import groupby
from operator import attrgetter

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from history.base import clock
from history.blocks import dictionaries, stored
from history.blocks.form import Row
from history.daily import days, doubled
from history.daily.canonical import Connection, columns, digest, encode, fields
from history.daily.day_locks import retry_lock, short_waits
from history.daily.days import DayState, DayTable
from history.daily.doubled import DoubledKey
from history.entities import Entity
from history.failure.complaints import Complaint
from history.models import DaySeal
from history.seals import late_rows, verification
from history.seals.seal import add


class NotRepairable(Complaint, RuntimeError):
    """A day that cannot be repaired; the text says why."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """What became of the versions that a day had twice."""

    equal: list[DoubledKey] = field(default_factory=list)
    """A second row had an equal content, and was removed."""
    differing: list[DoubledKey] = field(default_factory=list)
    """A second row had another content, which is in doubled_version now."""


def repair(connection: Connection, entity: Entity, day: date) -> Repaired:
    """Leave each version of a day once. Only with the lock of maintain's runs.

    Readers go on; writers of this day wait. `connection` is in autocommit mode.

    Raises:
        NotRepairable: the day has no partition that Annals made.
        SealedDayChangedError: the day is not as it was sealed.
        DamagedBlockError: a block of a document with doubled versions cannot be read.
        psycopg.errors.LockNotAvailable: a transaction that writes to the day stays open.
    """
    place = days.locate(connection, entity.table, day)
    if place.state is not DayState.ATTACHED or not place.ours:
        raise NotRepairable(f"{entity.table} has no partition of {day} that Annals made")
    changed = _find_change(connection, entity, day)
    repaired = Repaired()
    with connection.transaction():
        retry_lock(lambda: _stop_writers(connection, place), days.LOCK_WAIT_S)
        dictionaries.read(connection)
        keys = doubled.find(connection, entity, place.child)
        for id, _ in groupby(keys, attrgetter("id")):
            _repair_document(connection, entity, day, place, id, repaired)
        if changed is not None:
            if not keys:
                raise changed
            verification.check_locked(connection, entity, day, place)
        if keys and DaySeal.objects.filter(table=entity.table, day=day).exists():
            add(connection, entity.table, day, digest(connection, entity, place.child))
            late_rows.include(connection, entity.table, day)
    return repaired


def _find_change(
    connection: Connection, entity: Entity, day: date
) -> verification.SealedDayChangedError | None:
    """Return the error of a day that is not as it was sealed."""
    try:
        verification.check(connection, entity, day)
    except verification.SealedDayChangedError as error:
        return error
    return None


def _stop_writers(connection: Connection, place: DayTable) -> None:
    with connection.transaction():
        short_waits(connection)
        connection.execute(
            f"SET LOCAL idle_in_transaction_session_timeout = {days.SILENT_MS}".encode()
        )
        lock = sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE")
        connection.execute(lock.format(place.child))


def _repair_document(
    connection: Connection, entity: Entity, day: date, place: DayTable, id: str, repaired: Repaired
) -> None:
    """Write the versions of one document anew, each once, as plain rows."""
    kept: dict[tuple[int, int], Row] = {}
    moved: list[Row] = []
    taken_out: Counter[bytes] = Counter()
    for row in _versions(connection, entity, place, id):
        first = kept.setdefault(row[1:3], row)
        if first is row:
            continue
        taken_out[hashlib.sha256(encode(row)).digest()] += 1
        key = DoubledKey(id, row[1], stored.EPOCH + timedelta(microseconds=row[2]))
        if _is_equal(connection, first, row):
            repaired.equal.append(key)
        else:
            repaired.differing.append(key)
            moved.append(row)
    connection.execute(sql.SQL("DELETE FROM {} WHERE id = %s").format(place.child), [id])
    names = columns(entity)
    _insert(connection, place.child, names, kept.values())
    _insert(
        connection,
        sql.Identifier("doubled_version"),
        ["row_id" if name == "id" else name for name in names],
        moved,
        {"table": entity.table, "day": day, "taken_at": clock.now()},
    )
    late_rows.forget_taken_out(connection, entity.table, day, taken_out)


def _versions(connection: Connection, entity: Entity, place: DayTable, id: str) -> Iterator[Row]:
    """Yield the versions of a document on a day: those of blocks first, which were stored first."""
    query = sql.SQL(
        "SELECT {}, {} FROM {} WHERE id = %s ORDER BY packed IS NULL, version, updated_at"
    ).format(fields(entity), sql.SQL(", ").join(map(sql.Identifier, stored.BLOCK)), place.child)
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        rows = cursor.execute(query, [id], binary=True).fetchall()
    for row in rows:
        yield from stored.logical(entity.table, [row], None)


def _text(row: Row) -> str | None:
    document = row[-1]
    return document.decode() if isinstance(document, bytes) else document


def _is_equal(connection: Connection, one: Row, other: Row) -> bool:
    """Return whether two rows say the same, as PostgreSQL compares documents."""
    if one[:-1] != other[:-1]:
        return False
    texts = [_text(one), _text(other)]
    if texts[0] == texts[1]:
        return True
    return connection.execute("SELECT %s::jsonb = %s::jsonb", texts).fetchone() == (True,)


def _insert(
    connection: Connection,
    table: sql.Identifier,
    names: Sequence[str],
    rows: Iterable[Row],
    extra: Mapping[str, object] | None = None,
) -> None:
    """Insert plain rows as `fields` selects them, with more columns of equal values."""
    forms = {"updated_at": "'epoch'::timestamptz + %s * interval '1 microsecond'"}
    own = extra or {}
    query = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
        table,
        sql.SQL(", ").join(map(sql.Identifier, (*names, *own))),
        sql.SQL(", ").join([sql.SQL(forms.get(name, "%s")) for name in (*names, *own)]),
    )
    for row in rows:
        connection.execute(query, [*row[:-1], _text(row), *own.values()])
