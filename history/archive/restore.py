"""Restoring a day from the archive: all its rows or none."""

from collections.abc import Iterable
from datetime import date

from psycopg import errors, sql

from history import distribution
from history.archive import manifest
from history.archive.manifest import Manifest
from history.archive.store import ArchiveError, Store
from history.base.table import counted
from history.blocks.stored import count
from history.daily import days
from history.daily.canonical import Connection, columns, digest, timestamp
from history.daily.days import DayState
from history.entities import Entity
from history.seals import late_rows

KEY = ("id", "updated_at", "version")


def restore(connection: Connection, store: Store, entity: Entity, day: date) -> Manifest:
    """Bring a day of one table back as a partition that maintain keeps until `release`, in one
    transaction. Rows that the table has of that day are kept. Readers and writers go on. Only with
    the lock of maintain's runs; `connection` is in autocommit mode.

    Raises ArchiveError if the archive lacks the day or has other rows than its manifest says, if
    all rows are in the table, if one differs there, or if a transaction that uses the table stays
    open; ForeignTableError if the partition is not ours.
    """
    table = entity.table
    wanted = manifest.load(store, table, day)
    if wanted is None:
        raise ArchiveError(f"{table} {day} is not in the archive")
    try:
        _restore(connection, store, entity, wanted)
    except errors.LockNotAvailable:
        raise ArchiveError(
            f"a transaction that uses {table} stays open. Nothing was changed; try again later"
        ) from None
    return wanted


def _restore(connection: Connection, store: Store, entity: Entity, wanted: Manifest) -> None:
    table, day = wanted.table, wanted.day
    if days.locate(connection, table, day).state is DayState.PENDING:
        days.retry_lock(lambda: days.finalize(connection, table, day), days.LOCK_WAIT_S)
    place = days.locate(connection, table, day)
    there = place.state is not DayState.ABSENT and count(connection, place.child) == wanted.rows
    if there and digest(connection, entity, place.child).finish() == wanted.digest:
        name = days.partition_name(table, day)
        raise ArchiveError(
            f"{name} is there and has {counted(wanted.rows, 'row')}, all that the archive has"
        )
    if days.is_packed(connection, table, day):
        raise ArchiveError(f"{table} {day} is packed: run `partitions unpack {day}` first")
    with connection.transaction():
        distribution.one_by_one(connection)
        days.create_detached(connection, place._replace(child=place.new), day, days.RESTORED)
        _fill(connection, store, entity, place.new, wanted)
        late_rows.forget_repeats(connection, entity, day, place.new, wanted.digest)
        merge = _Merge(connection, entity)
        if days.locate(connection, table, day).state is not DayState.ABSENT:
            merge(place)  # before any lock: later only rows that arrive meanwhile are left
        days.replace(connection, table, day, merge)


def _fill(
    connection: Connection,
    store: Store,
    entity: Entity,
    new: sql.Identifier,
    wanted: Manifest,
) -> None:
    """Load the archived rows and compare their digest with the manifest's."""
    names = columns(entity)
    query = sql.SQL("COPY {} ({}) FROM STDIN").format(new, _list(names))
    moment = names.index("updated_at")
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        for row in manifest.checked_rows(store, wanted):
            values = list(row)
            values[moment] = timestamp(row[moment])
            copy.write_row(values)
    connection.execute(sql.SQL("ANALYZE {}").format(new))


class _Merge:
    """Copies the rows of a day that its new table does not have."""

    def __init__(self, connection: Connection, entity: Entity) -> None:
        self._connection = connection
        self._columns = columns(entity)
        self._rows = 0

    def __call__(self, place: days.DayTable) -> None:
        rows = count(self._connection, place.child)
        if rows == self._rows:
            return
        self._rows = rows
        # Otherwise Citus moves no more than a gigabyte.
        self._connection.execute("SET LOCAL citus.max_intermediate_result_size TO -1")
        tables = {"new": place.new, "old": place.child}
        self._check(tables)
        self._connection.execute(
            sql.SQL(
                "INSERT INTO {new} ({names}) SELECT {names} FROM {old} ON CONFLICT DO NOTHING"
            ).format(names=_list(self._columns), **tables)
        )

    def _check(self, tables: dict[str, sql.Identifier]) -> None:
        """Raise ArchiveError if a row differs from the archived row with its key."""
        rest = [name for name in self._columns if name not in (*KEY, "data")]
        row = self._connection.execute(
            sql.SQL(
                "SELECT id, version FROM {new} AS a JOIN {old} AS b USING ({key})"
                " WHERE (a.data::text, {a}) IS DISTINCT FROM (b.data::text, {b}) LIMIT 1"
            ).format(key=_list(KEY), a=_list(rest, "a"), b=_list(rest, "b"), **tables)
        ).fetchone()
        if row is not None:
            raise ArchiveError(
                f"{row[0]} version {row[1]} differs from its archived row. Correct the table first"
            )


def _list(names: Iterable[str], alias: str | None = None) -> sql.Composed:
    prefix = () if alias is None else (alias,)
    return sql.SQL(", ").join(sql.Identifier(*prefix, name) for name in names)
