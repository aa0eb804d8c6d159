"""Restoring a day from the archive: all its rows or none."""

from __future__ import annotations

from datetime import UTC, date, datetime

from psycopg import sql

from history import days
from history.archive import manifest, parquet
from history.archive.manifest import Manifest
from history.archive.parquet import row_hash
from history.archive.store import ArchiveError, Store
from history.archive.write import Progress, count
from history.canonical import Connection, Digest, columns
from history.days import State
from history.entities import Entity


def restore(
    connection: Connection,
    store: Store,
    entity: Entity,
    day: date,
    progress: Progress = lambda _: None,
) -> Manifest:
    """Bring a day of one table back as a partition that maintain keeps until `release`.

    Nobody sees any of its rows before all are there and have the digest of the manifest. Raises
    ArchiveError where the archive has no such day or other rows than its manifest says, and where
    the table has rows of that day.
    """
    table = entity.table
    found = manifest.load(store, table, day)
    if found is None:
        raise ArchiveError(f"{table} {day} is not in the archive")
    _make_room(connection, table, day)
    place = days.locate(connection, table, day)
    with connection.transaction():
        days.create_detached(connection, place, day, days.RESTORED)
    try:
        _fill(connection, store, entity, place, found, progress)
    except BaseException:
        _drop(connection, place)
        raise
    days.retry_lock(lambda: _attach(connection, place, day), days.LOCK_WAIT_S)
    connection.execute(sql.SQL("ANALYZE {}").format(place.child))
    return found


def release(connection: Connection, table: str, day: date) -> None:
    """Let maintain treat a restored day like any other again. Raises ArchiveError where that day
    was not restored."""
    place = days.locate(connection, table, day)
    if place.comment != days.RESTORED:
        raise ArchiveError(f"{days.partition_name(table, day)} was not restored from the archive")
    days.mark_as(connection, place, days.MARK)


def _make_room(connection: Connection, table: str, day: date) -> None:
    """Take away an empty partition of the day, and what an interrupted restore left."""
    place = days.locate(connection, table, day)
    if place.state is State.DETACHED and place.comment == days.RESTORED:
        _drop(connection, place)
    elif place.state is not State.ABSENT:
        rows = count(connection, place.child)
        if rows:
            raise ArchiveError(f"{days.partition_name(table, day)} is there and has {rows} rows")
        days.drop(connection, table, day)


def _fill(
    connection: Connection,
    store: Store,
    entity: Entity,
    place: days.DayTable,
    wanted: Manifest,
    progress: Progress,
) -> None:
    """Load the rows and compare their digest with the manifest's."""
    names = columns(entity)
    staged = sql.SQL(", ").join(sql.Identifier(name) for name in names)
    query = sql.SQL("COPY {} ({}) FROM STDIN").format(place.child, staged)
    moment = names.index("updated_at")
    digest = Digest()
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        for row in manifest.rows(store, wanted):
            digest.add(row[0], row[1], row_hash(row))
            values = list(row)
            values[moment] = _timestamp(row[moment])
            copy.write_row(values)
            if digest.rows % parquet.GROUP_ROWS == 0:
                progress(digest.rows)
        if digest.rows != wanted.rows or digest.finish() != wanted.digest:
            raise ArchiveError(f"the files of {wanted.table} {wanted.day} are not as they were")
    progress(wanted.rows)


def _timestamp(microseconds: int) -> str:
    """PostgreSQL's text of a moment, exact to the microsecond and with its offset."""
    seconds, rest = divmod(microseconds, 1_000_000)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{rest:06}+00"


def _attach(connection: Connection, place: days.DayTable, day: date) -> None:
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {days.LOCK_TIMEOUT_MS}")
        days.attach(connection, place, day)


def _drop(connection: Connection, place: days.DayTable) -> None:
    connection.execute(sql.SQL("DROP TABLE {}").format(place.child))
