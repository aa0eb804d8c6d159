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
from history.daily import days, rebuild
from history.daily.canonical import Connection, columns, digest, timestamp
from history.daily.days import DayState
from history.daily.rebuild import Watch
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
    except rebuild.ChangedMeanwhileError as error:
        raise ArchiveError(str(error)) from None
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
    absent = days.locate(connection, table, day).state is DayState.ABSENT
    if absent or distribution.active(connection):  # a distributed table has no triggers
        _swap(connection, store, entity, wanted, _Merge(connection, entity, None))
        return
    with rebuild.watched(connection, place) as watch:
        _swap(connection, store, entity, wanted, _Merge(connection, entity, watch))


def _swap(
    connection: Connection, store: Store, entity: Entity, wanted: Manifest, merge: "_Merge"
) -> None:
    """Fill a new table of the day, and put it in the place of the old one."""
    table, day = wanted.table, wanted.day
    with connection.transaction():
        distribution.one_by_one(connection)
        place = days.locate(connection, table, day)
        days.create_detached(connection, place._replace(child=place.new), day, days.RESTORED)
        _fill(connection, store, entity, place.new, wanted)
        late_rows.forget_repeats(connection, entity, day, place.new, wanted.digest)
        if place.state is not DayState.ABSENT:
            merge.add_all(place)  # before any lock: later only rows that arrive meanwhile are left
        days.replace(connection, table, day, merge.settle)


def _fill(
    connection: Connection,
    store: Store,
    entity: Entity,
    new: sql.Identifier,
    wanted: Manifest,
) -> None:
    """Load the archived rows and compare their digest with the manifest's."""
    names = columns(entity)
    # Frozen rows are seen also by who began before (history.daily.rebuild).
    how = "" if distribution.active(connection) else " (FREEZE)"
    query = sql.SQL("COPY {} ({}) FROM STDIN" + how).format(new, _list(names))
    moment = names.index("updated_at")
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        for row in manifest.checked_rows(store, wanted):
            values = list(row)
            values[moment] = timestamp(row[moment])
            copy.write_row(values)
    connection.execute(sql.SQL("ANALYZE {}").format(new))


class _Merge:
    """Copies the rows of a day that its new table does not have.

    Args:
        watch: what notes the changes of the old table; None where nothing does: the table was made
            meanwhile, or is in a cluster. Then all of its rows are compared under the lock.
    """

    def __init__(self, connection: Connection, entity: Entity, watch: Watch | None) -> None:
        self._connection = connection
        self._entity = entity
        self._watch = watch

    def settle(self, place: days.DayTable) -> None:
        """Copy the last rows, and prove that none is missing, when nobody can write any more.

        Raises:
            ArchiveError: a row differs from the archived row with its key.
            psycopg.errors.LockNotAvailable: rows were changed or removed meanwhile.
        """
        if self._watch is None:
            self.add_all(place)
        else:
            self._check(place, self._watch.noted_keys())
            self._watch.settle(self._connection, self._entity, place)

    def add_all(self, place: days.DayTable) -> None:
        """Copy the rows that are there now. Raises ArchiveError as `settle` does."""
        self._check(place)
        if not distribution.active(self._connection):
            rebuild.add_missing(self._connection, self._entity, place)
            return
        # Otherwise Citus moves no more than a gigabyte.
        self._connection.execute("SET LOCAL citus.max_intermediate_result_size TO -1")
        self._connection.execute(
            sql.SQL(
                "INSERT INTO {new} ({names}) SELECT {names} FROM {old} ON CONFLICT DO NOTHING"
            ).format(names=_list(columns(self._entity)), new=place.new, old=place.child)
        )

    def _check(self, place: days.DayTable, keys: sql.Composable | None = None) -> None:
        """Raise ArchiveError if a row differs from the archived row with its key."""
        rest = [name for name in columns(self._entity) if name not in (*KEY, "data")]
        row = self._connection.execute(
            sql.SQL(
                "SELECT id, version FROM {new} AS a JOIN {old} AS b USING ({key}) {among}"
                " WHERE (a.data::text, {a}) IS DISTINCT FROM (b.data::text, {b}) LIMIT 1"
            ).format(
                new=place.new,
                old=place.child,
                key=_list(KEY),
                among=sql.SQL("")
                if keys is None
                else sql.SQL("JOIN ({}) AS key USING ({})").format(keys, _list(KEY)),
                a=_list(rest, "a"),
                b=_list(rest, "b"),
            )
        ).fetchone()
        if row is not None:
            raise ArchiveError(
                f"{row[0]} version {row[1]} differs from its archived row. Correct the table first"
            )


def _list(names: Iterable[str], alias: str | None = None) -> sql.Composed:
    prefix = () if alias is None else (alias,)
    return sql.SQL(", ").join(sql.Identifier(*prefix, name) for name in names)
