"""A new table of a day, built beside the old one, and the proof that both have the same versions.

Packing, unpacking and restoring a day first call `watch_table`. From then on triggers of the old
table write the key of each changed row to the table changed_row, whoever changes the row: the
consumer of any release, SQL, COPY or a replication. CREATE TRIGGER waits until all transactions
that wrote to the old table have ended. So the key of a new row is in changed_row, or a query that
begins after `watch_table` sees the row. At the end, when all writers are locked out,
`TableWatch.settle` copies the rows that were inserted since `watch_table` to the new table, and
checks that the old table was not changed in any other way.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, LiteralString, TypeAlias

import psycopg
from psycopg import errors, sql
from psycopg.copy import Writer

from history.common.single_row import require_row
from history.kinds.entities import EntityKind
from history.store import distribution
from history.store.blocks import queries
from history.store.blocks.codec import BlockColumns, CanonicalRow
from history.store.days import day_locks, days
from history.store.days.canonical import Connection, list_columns, stream_versions
from history.store.days.day_locks import (
    exclude_autovacuum,
    retry_lock,
    set_short_lock_timeout,
)
from history.store.days.days import DayTable

# A row of a new table: a plain row and None, or the row of a block and the columns of the block.
StoredRow: TypeAlias = tuple[CanonicalRow, BlockColumns | None]

# COPY counts moments from the year 2000, which is this many microseconds after 1970.
_EPOCH: Final = 946_684_800_000_000
# How many keys of missing rows one statement returns, at most.
KEYS_AT_ONCE: Final = 5_000
# How many bytes of snapshots are in memory while missing rows are copied, at most. A larger
# snapshot is copied alone.
BYTES_AT_ONCE: Final = 8 * 1024 * 1024
# How many seconds the removal of a leftover trigger may wait for its table.
_STOP_WAIT_S: Final = 1.0

_TRIGGERS: Final = ("annals_note_change", "annals_note_truncate")
# Creates the triggers that note changes of a table.
_CREATE_TRIGGERS: Final[LiteralString] = """
CREATE OR REPLACE TRIGGER annals_note_change AFTER INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION annals_note_change();
CREATE OR REPLACE TRIGGER annals_note_truncate AFTER TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION annals_note_change();
ALTER TABLE {table} ENABLE ALWAYS TRIGGER annals_note_change;
ALTER TABLE {table} ENABLE ALWAYS TRIGGER annals_note_truncate
"""
# Removes the triggers of _CREATE_TRIGGERS.
_DROP_TRIGGERS: Final[LiteralString] = """
DROP TRIGGER IF EXISTS annals_note_change ON {table};
DROP TRIGGER IF EXISTS annals_note_truncate ON {table}
"""
# Returns the fields of TableWatch. If somebody disables or enables a trigger, PostgreSQL writes the
# trigger's row in the catalogue anew, so that its xmin changes.
_WATCHED_STATE: Final[LiteralString] = """
SELECT c.oid::bigint, pg_relation_filenode(c.oid)::bigint, coalesce((
    SELECT string_agg(concat_ws(' ', t.oid, t.xmin, t.tgenabled), ', ' ORDER BY t.oid)
    FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = ANY(%(triggers)s)), '')
FROM pg_class c WHERE c.oid = %(table)s::regclass
"""
# Returns the tables that have the triggers of _CREATE_TRIGGERS.
_TABLES_WITH_TRIGGERS: Final[LiteralString] = """
SELECT DISTINCT n.nspname, c.relname FROM pg_trigger t
JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.tgname = ANY(%s)
"""
# Deletes the notes about tables without the triggers of _CREATE_TRIGGERS. Such a table was dropped,
# or another table has its OID since a dump was restored.
_DELETE_STRAY_NOTES: Final[LiteralString] = """
DELETE FROM changed_row WHERE NOT EXISTS (
    SELECT FROM pg_trigger t WHERE t.tgname = ANY(%s) AND t.tgrelid = changed_row.partition::oid)
"""
# Creates the trigger that refuses versions that a block has.
_CREATE_GUARD: Final[LiteralString] = """
CREATE OR REPLACE TRIGGER annals_refuse_packed
    BEFORE INSERT OR UPDATE OF id, version, updated_at ON {table}
    FOR EACH ROW EXECUTE FUNCTION annals_refuse_packed();
ALTER TABLE {table} ENABLE ALWAYS TRIGGER annals_refuse_packed
"""
# Returns the packed days without the trigger of _CREATE_GUARD.
_UNGUARDED_DAYS: Final[LiteralString] = """
SELECT "table", day FROM sealed_day
WHERE packed_at IS NOT NULL AND to_regclass("table" || to_char(day, '_YYYYMMDD')) IS NOT NULL
    AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'annals_refuse_packed'
        AND tgrelid = to_regclass("table" || to_char(day, '_YYYYMMDD')) AND tgenabled = 'A')
"""
# Returns the keys of the rows that were inserted into a watched table.
_INSERTED_ROWS: Final[LiteralString] = (
    "SELECT DISTINCT row_id AS id, updated_at, version FROM changed_row"
    " WHERE partition = {partition} AND change = 'insert'"
)
# Returns the keys of all plain rows of the old table.
_PLAIN_ROWS: Final[LiteralString] = "SELECT id, updated_at, version FROM {old} WHERE packed IS NULL"
# Returns the rows among `keys` that the new table lacks, and the size of each snapshot. Returns
# only rows after the key (id, moment, version), in the order of the keys.
_MISSING_ROWS: Final[LiteralString] = """
SELECT key.id, key.updated_at, key.version, coalesce(octet_length(old.data::text), 0)
FROM ({keys}) AS key JOIN {old} AS old USING (id, updated_at, version)
WHERE old.packed IS NULL
    AND (key.id, key.updated_at, key.version) > (%(id)s, %(moment)s, %(version)s)
    AND NOT EXISTS (SELECT FROM {versions} AS new WHERE new.id = key.id
        AND new.stored_at >= key.updated_at AND new.version = key.version
        AND new.updated_at = key.updated_at)
ORDER BY key.id, key.updated_at, key.version LIMIT {limit}
"""
# A key before all keys.
_BEFORE_FIRST: Final = ("", datetime(1, 1, 1, tzinfo=UTC), -1)
# PostgreSQL counts the rows of a table by an index alone, except in pages that may have invisible
# rows: there it must read each row. A table is counted if these pages have at most this many bytes.
UNKNOWN_BYTES: Final = 64 * 1024 * 1024
# Returns how many bytes the pages of a table have that may have invisible rows.
_PARTLY_VISIBLE_BYTES: Final[LiteralString] = (
    "SELECT pg_relation_size(oid) - relallvisible::bigint * current_setting('block_size')::int"
    " FROM pg_class WHERE oid = %s::regclass"
)


class ChangedMeanwhileError(errors.LockNotAvailable):
    """Raised if the new table of a day cannot replace the old one because the old one changed.

    A later attempt can succeed.
    """


@dataclass(frozen=True, slots=True)
class TableWatch:
    """The state of a day's old table at the time when the building of the new table began."""

    partition: int  # the OID of the table
    file: int  # the number of the table's file; changes when PostgreSQL rewrites the table
    triggers: str  # the identity of the triggers; changes when somebody changes a trigger

    def add_noted_rows(
        self, connection: Connection, entity: EntityKind, day_table: DayTable
    ) -> int:
        """Copy to the new table the rows that were inserted into the old table since `watch_table`.

        Call it in the transaction that made the new table, after the indexes of the new table were
        made.

        Returns:
            How many rows were copied.
        """
        return add_missing_rows(connection, entity, day_table, self.build_noted_query())

    def build_noted_query(self) -> sql.Composed:
        """Return a query for the rows that were inserted into the old table since `watch_table`.

        It selects their id, updated_at and version.
        """
        return sql.SQL(_INSERTED_ROWS).format(partition=sql.Literal(self.partition))

    def settle(self, connection: Connection, entity: EntityKind, day_table: DayTable) -> int:
        """Copy to the new table the rows that the old table got after the call of `watch_table`.

        Proves that no row of the old table was changed or removed. Call this method while all
        writers are locked out.

        Returns:
            How many rows were copied.

        Raises:
            ChangedMeanwhileError: Rows were changed or removed, the old table was replaced, or
                somebody changed the triggers of the old table. A later attempt can succeed.
        """
        if _load_state(connection, day_table) != self:
            raise _build_changed_error(
                day_table, "the old table or one of its triggers was replaced"
            )
        row = connection.execute(
            "SELECT change, row_id, version FROM changed_row"
            " WHERE partition = %s AND change <> 'insert' ORDER BY id LIMIT 1",
            [self.partition],
        ).fetchone()
        if row is not None:
            change, id, version = row
            row_name = "" if id is None else f" of {id} version {version}"
            raise _build_changed_error(
                day_table, f"somebody changed or removed rows of the old table: {change}{row_name}"
            )
        added = self.add_noted_rows(connection, entity, day_table)
        connection.execute("DELETE FROM changed_row WHERE partition = %s", [self.partition])
        return added


@contextmanager
def watch_table(connection: Connection, day_table: DayTable) -> Iterator[TableWatch]:
    """Create triggers that note all changes of a day's table from now on.

    If the `with` block succeeds, the old table is dropped with its triggers. If it raises, the
    triggers are removed. If the process is killed, they stay until `remove_leftover_triggers`.
    Needs a `connection` in autocommit mode.

    Raises:
        psycopg.errors.LockNotAvailable: A transaction that wrote to the day stays open.
    """
    watch = retry_lock(lambda: _begin_watch(connection, day_table), day_locks.LOCK_WAIT_S)
    try:
        yield watch
    except Exception:
        if not connection.closed:
            with suppress(psycopg.Error):
                _stop_watch(connection, day_table.child)
        raise


def remove_leftover_triggers(connection: Connection) -> None:
    """Remove the triggers of a process that was killed. Needs the run lock.

    A locked table keeps its triggers until the next call. Until then, the triggers write rows into
    `changed_row` that nobody needs. Rows about tables that no longer exist are deleted, too.
    """
    for schema, name in connection.execute(_TABLES_WITH_TRIGGERS, [list(_TRIGGERS)]).fetchall():
        with suppress(errors.LockNotAvailable, errors.DeadlockDetected):
            _stop_watch(connection, sql.Identifier(schema, name))
    connection.execute(_DELETE_STRAY_NOTES, [list(_TRIGGERS)])


def guard_table(connection: Connection, table: sql.Identifier) -> None:
    """Add a trigger to a packed table that refuses a row with a version that a block has already.

    The trigger reports a violated primary key (SQLSTATE 23505), which every writer handles.
    """
    connection.execute(sql.SQL(_CREATE_GUARD).format(table=table))


def guard_packed_days(connection: Connection) -> None:
    """Add the trigger of `guard_table` to the days that an earlier release packed without it.

    The trigger refuses a row with a version that a block already has. A locked table is left to the
    next call. Does nothing on a cluster, which does not have triggers: there, only the consumer
    checks whether a block already has a version. Needs the run lock.
    """
    if distribution.is_distributed(connection):
        return
    for table, day in connection.execute(_UNGUARDED_DAYS).fetchall():
        day_table = days.locate_day(connection, table, day)

        def attempt(child: sql.Identifier = day_table.child) -> None:
            with connection.transaction():
                set_short_lock_timeout(connection)
                guard_table(connection, child)

        with suppress(errors.LockNotAvailable, errors.DeadlockDetected):
            retry_lock(attempt, _STOP_WAIT_S)


def add_missing_rows(
    connection: Connection,
    entity: EntityKind,
    day_table: DayTable,
    keys: sql.Composable | None = None,
) -> int:
    """Copy the rows of the old table that the new one lacks. Return their number.

    Args:
        keys: A query for id, updated_at and version of the rows to look for. None: all rows.
    """
    if keys is None:
        keys = sql.SQL(_PLAIN_ROWS).format(old=day_table.child)
    query = sql.SQL(_MISSING_ROWS).format(
        keys=keys,
        old=day_table.child,
        versions=sql.SQL(queries.build_versions_query(entity, day_table.new.as_string(connection))),
        limit=sql.Literal(KEYS_AT_ONCE),
    )
    # PostgreSQL must look up each row by its key, and not read whole tables.
    connection.execute(
        "SET LOCAL enable_seqscan TO off; SET LOCAL enable_hashjoin TO off;"
        "SET LOCAL enable_mergejoin TO off; SET LOCAL enable_bitmapscan TO off"
    )
    added = 0
    id, moment, version = _BEFORE_FIRST
    while True:
        values = {"id": id, "moment": moment, "version": version}
        missing = connection.execute(query, values).fetchall()
        for portion in _split_into_portions(missing):
            source = sql.SQL(
                "(SELECT old.* FROM {old} AS old JOIN (VALUES {keys}) AS key (id, moment, number)"
                " ON old.id = key.id AND old.updated_at = key.moment::timestamptz"
                " AND old.version = key.number) AS late"
            ).format(
                old=day_table.child,
                keys=sql.SQL(", ").join(
                    sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, key)))
                    for key in portion
                ),
            )
            rows = list(stream_versions(connection, entity, source, ordered=False, data="bytea"))
            added += write_rows(connection, entity, day_table.new, ((row, None) for row in rows))
        if len(missing) < KEYS_AT_ONCE:
            return added
        id, moment, version, _ = missing[-1]


def write_rows(
    connection: Connection,
    entity: EntityKind,
    table: sql.Identifier,
    rows: Iterable[StoredRow],
    writer: Callable[[psycopg.Cursor[Any]], Writer] | None = None,
    *,
    frozen: bool = True,
) -> int:
    """Write rows to a table. Return their number.

    Args:
        writer: Makes the object through which psycopg sends the data. None: psycopg's own.
        frozen: Whether to write the rows as frozen. A transaction that began before the swap sees
            frozen rows; it would see an empty day if they were not frozen. Frozen rows can be
            written only to a table that this transaction has made.
    """
    child = () if entity.parent is None else ("text",)
    types = ["text", "int4", "int8", "text", "text", "int4", *child, "bytea", *queries.BLOCK_TYPES]
    empty = (None,) * len(queries.BLOCK_COLUMNS)
    form = "FROM STDIN (FORMAT BINARY, FREEZE)" if frozen else "FROM STDIN (FORMAT BINARY)"
    query = build_copy_command(entity, table, form)
    with connection.cursor() as cursor:
        with cursor.copy(query, writer=writer(cursor) if writer else None) as copy:
            copy.set_types(types)
            for (id, version, moment, *labels, text), block in rows:
                # COPY takes bytes for JSONB, and a number for a moment.
                data = None if text is None else b"\1" + text
                plain_values = (id, version, moment - _EPOCH, *labels, data)
                copy.write_row((*plain_values, *(empty if block is None else block)))
        return cursor.rowcount


def build_copy_command(
    entity: EntityKind, table: sql.Identifier, options: LiteralString
) -> sql.Composed:
    """Build a COPY command with all columns of `table`: those of plain rows and of blocks."""
    names = map(sql.Identifier, (*list_columns(entity), *queries.BLOCK_COLUMNS))
    return sql.SQL("COPY {} ({}) " + options).format(table, sql.SQL(", ").join(names))


def count_cheaply(connection: Connection, table: sql.Identifier, packed: bool) -> int | None:
    """Return how many versions a table has, or None if counting would take seconds.

    A packed table is small, so it is always counted. A plain table is counted only if most of its
    pages are known to have no invisible rows: then PostgreSQL reads only the index.
    """
    if packed:
        return queries.count_versions(connection, table)
    unknown_bytes = connection.execute(
        _PARTLY_VISIBLE_BYTES, [table.as_string(connection)]
    ).fetchone()
    if unknown_bytes is None or unknown_bytes[0] > UNKNOWN_BYTES:
        return None
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table)).fetchone()
    return int(row[0]) if row else None


def _begin_watch(connection: Connection, day_table: DayTable) -> TableWatch:
    with connection.transaction():
        exclude_autovacuum(connection, day_table.child)
        set_short_lock_timeout(connection)
        connection.execute(sql.SQL(_CREATE_TRIGGERS).format(table=day_table.child))
        watch = _load_state(connection, day_table)
        connection.execute("DELETE FROM changed_row WHERE partition = %s", [watch.partition])
        return watch


def _stop_watch(connection: Connection, table: sql.Identifier) -> None:
    def attempt() -> None:
        with connection.transaction():
            set_short_lock_timeout(connection)
            connection.execute(sql.SQL(_DROP_TRIGGERS).format(table=table))
            connection.execute(
                "DELETE FROM changed_row WHERE partition = %s::regclass::oid::bigint",
                [table.as_string(connection)],
            )

    retry_lock(attempt, _STOP_WAIT_S)


def _load_state(connection: Connection, day_table: DayTable) -> TableWatch:
    values = {"triggers": list(_TRIGGERS), "table": day_table.child.as_string(connection)}
    # The cast to regclass raises if there is no such table.
    return TableWatch(*require_row(connection.execute(_WATCHED_STATE, values).fetchone()))


def _build_changed_error(day_table: DayTable, reason: str) -> ChangedMeanwhileError:
    name = day_table.child._obj[-1]
    return ChangedMeanwhileError(
        f"{name} stays as it is: while its new table was built, {reason}. Try again"
    )


def _split_into_portions(
    missing: Sequence[tuple[str, datetime, int, int]],
) -> Iterator[list[tuple[str, datetime, int]]]:
    """Divide the rows into portions.

    The snapshots of a portion have at most BYTES_AT_ONCE together, unless the portion is a single
    row.
    """
    portion: list[tuple[str, datetime, int]] = []
    size = 0
    for id, moment, version, length in missing:
        if portion and size + length > BYTES_AT_ONCE:
            yield portion
            portion, size = [], 0
        portion.append((id, moment, version))
        size += length
    if portion:
        yield portion
