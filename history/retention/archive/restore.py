"""Restores a day from the archive: all its rows or none."""

from collections.abc import Iterable
from datetime import date

from psycopg import errors, sql

from history.common.text_tables import pluralize
from history.kinds.entities import EntityKind
from history.retention.archive import manifest
from history.retention.archive.manifest import Manifest
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.retention.seals import late_rows
from history.store import distribution, late_list
from history.store.blocks.queries import count_versions
from history.store.days import day_locks, days, table_swap
from history.store.days.canonical import (
    Connection,
    compute_digest,
    format_timestamp,
    list_columns,
)
from history.store.days.days import DayState
from history.store.days.table_swap import TableWatch

KEY = ("id", "updated_at", "version")


def restore_day(
    connection: Connection, store: ArchiveStore, entity: EntityKind, day: date
) -> Manifest:
    """Restore an archived day of one table as a partition.

    `maintain` does not drop the partition before `partitions release`. If the table has rows of the
    day already, they stay. If a feed of changes has passed the day, the restored versions are added
    to the late list. The function works in one transaction. Other sessions can read and write
    meanwhile. Needs the run lock, and a `connection` in autocommit mode.

    Raises:
        ArchiveError: The archive does not have the day, has other rows than its manifest says, or
            has a row that differs from the row of the table. Or the table of the day has all rows
            already, is packed, or is used by a transaction that stays open.
        ForeignTableError: Annals did not make the partition.
    """
    table = entity.table
    stored_manifest = manifest.load_manifest(store, table, day)
    if stored_manifest is None:
        raise ArchiveError(f"{table} {day} is not in the archive")
    try:
        _restore_rows(connection, store, entity, stored_manifest)
    except table_swap.ChangedMeanwhileError as error:
        raise ArchiveError(str(error)) from None
    except errors.LockNotAvailable:
        raise ArchiveError(
            f"a transaction that uses {table} stays open. Nothing was changed; try again later"
        ) from None
    return stored_manifest


def _restore_rows(
    connection: Connection, store: ArchiveStore, entity: EntityKind, stored_manifest: Manifest
) -> None:
    table, day = stored_manifest.table, stored_manifest.day
    if days.locate_day(connection, table, day).state is DayState.PENDING:
        day_locks.retry_lock(
            lambda: days.finalize_detach(connection, table, day), day_locks.LOCK_WAIT_S
        )
    day_table = days.locate_day(connection, table, day)
    has_same_count = (
        day_table.state is not DayState.ABSENT
        and count_versions(connection, day_table.child) == stored_manifest.rows
    )
    if (
        has_same_count
        and compute_digest(connection, entity, day_table.child).finish() == stored_manifest.digest
    ):
        name = days.build_partition_name(table, day)
        raise ArchiveError(
            f"nothing to restore: {name} exists and has all rows of the archive "
            f"({pluralize(stored_manifest.rows, 'row')})"
        )
    if days.is_packed(connection, table, day):
        raise ArchiveError(f"{table} {day} is packed: run `partitions unpack {day}` first")
    is_absent = days.locate_day(connection, table, day).state is DayState.ABSENT
    if is_absent or distribution.is_distributed(connection):  # a distributed table has no triggers
        _replace_day_table(
            connection, store, entity, stored_manifest, _RestoreMerge(connection, entity, None)
        )
        return
    with table_swap.watch_table(connection, day_table) as watch:
        _replace_day_table(
            connection, store, entity, stored_manifest, _RestoreMerge(connection, entity, watch)
        )


def _replace_day_table(
    connection: Connection,
    store: ArchiveStore,
    entity: EntityKind,
    stored_manifest: Manifest,
    merge: "_RestoreMerge",
) -> None:
    """Fill a new table for the day, and swap it with the old table."""
    table, day = stored_manifest.table, stored_manifest.day
    with connection.transaction():
        distribution.use_one_connection(connection)
        day_table = days.locate_day(connection, table, day)
        days.create_detached_table(
            connection, day_table._replace(child=day_table.new), day, days.RESTORED
        )
        _load_archived_rows(connection, store, entity, day_table.new, stored_manifest)
        late_rows.forget_archived_rows(
            connection, entity, day, day_table.new, stored_manifest.digest
        )
        late_list.stage_table(connection, day_table.new)
        if day_table.state is not DayState.ABSENT:
            # This happens before the table is locked. Under the lock few rows are left to copy.
            merge.add_all_rows(day_table)
        days.replace_table(connection, table, day, merge.settle)
        late_list.add_staged_versions(connection, entity.name)


def _load_archived_rows(
    connection: Connection,
    store: ArchiveStore,
    entity: EntityKind,
    new: sql.Identifier,
    stored_manifest: Manifest,
) -> None:
    """Copy the archived rows to the new table, and compare their digest with the manifest."""
    names = list_columns(entity)
    # Frozen rows are visible to transactions that began before them, too. See
    # history.store.days.table_swap.
    options = "" if distribution.is_distributed(connection) else " (FREEZE)"
    query = sql.SQL("COPY {} ({}) FROM STDIN" + options).format(new, _list_columns(names))
    moment = names.index("updated_at")
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        for row in manifest.read_checked_rows(store, stored_manifest):
            values = list(row)
            values[moment] = format_timestamp(row[moment])
            copy.write_row(values)
    connection.execute(sql.SQL("ANALYZE {}").format(new))


class _RestoreMerge:
    """Copies the rows that the archive lacks from the old table of a day to the restored table.

    Args:
        watch: Knows which rows were added to the old table since the restore began, so that
            `settle` compares only these. None on a cluster, or if the restore began without an old
            table: `settle` then compares all rows of the old table, if there is one by then.
    """

    def __init__(
        self, connection: Connection, entity: EntityKind, watch: TableWatch | None
    ) -> None:
        self._connection = connection
        self._entity = entity
        self._watch = watch

    def settle(self, day_table: days.DayTable) -> None:
        """Copy to the new table the rows that the old table of the day got after `add_all_rows`.

        Call it while all writers are locked out.

        Raises:
            ArchiveError: A row differs from the archived row with the same key.
            ChangedMeanwhileError: Rows of the old table were changed or removed. A later attempt
                can succeed.
        """
        if self._watch is None:
            self.add_all_rows(day_table)
        else:
            self._refuse_differing_rows(day_table, self._watch.build_noted_query())
            self._watch.settle(self._connection, self._entity, day_table)

    def add_all_rows(self, day_table: days.DayTable) -> None:
        """Copy the rows of the day's old table to the new table, unless the new table has them.

        Raises:
            ArchiveError: A row differs from the archived row with the same key.
        """
        self._refuse_differing_rows(day_table)
        if not distribution.is_distributed(self._connection):
            table_swap.add_missing_rows(self._connection, self._entity, day_table)
            return
        # By default Citus moves at most a gigabyte.
        self._connection.execute("SET LOCAL citus.max_intermediate_result_size TO -1")
        self._connection.execute(
            sql.SQL(
                "INSERT INTO {new} ({names}) SELECT {names} FROM {old} ON CONFLICT DO NOTHING"
            ).format(
                names=_list_columns(list_columns(self._entity)),
                new=day_table.new,
                old=day_table.child,
            )
        )

    def _refuse_differing_rows(
        self, day_table: days.DayTable, keys: sql.Composable | None = None
    ) -> None:
        """Raise ArchiveError if a row differs from the archived row with the same key."""
        value_columns = [name for name in list_columns(self._entity) if name not in (*KEY, "data")]
        row = self._connection.execute(
            sql.SQL(
                "SELECT id, version FROM {new} AS a JOIN {old} AS b USING ({key}) {among}"
                " WHERE (a.data::text, {a}) IS DISTINCT FROM (b.data::text, {b}) LIMIT 1"
            ).format(
                new=day_table.new,
                old=day_table.child,
                key=_list_columns(KEY),
                among=sql.SQL("")
                if keys is None
                else sql.SQL("JOIN ({}) AS key USING ({})").format(keys, _list_columns(KEY)),
                a=_list_columns(value_columns, "a"),
                b=_list_columns(value_columns, "b"),
            )
        ).fetchone()
        if row is not None:
            raise ArchiveError(
                f"{row[0]} version {row[1]} differs from its archived row. Correct the table first"
            )


def _list_columns(names: Iterable[str], alias: str | None = None) -> sql.Composed:
    prefix = () if alias is None else (alias,)
    return sql.SQL(", ").join(sql.Identifier(*prefix, name) for name in names)
