"""A new table of a day, built beside the old one, and the proof that both have the same versions.

Packing, unpacking and restoring a day first call `watch_table`. From then on triggers of the old
table note the key of each row that changes, whoever changes it: the consumer of any release, SQL,
COPY or a replication. PostgreSQL creates a trigger when all transactions that wrote to the table
have ended. So each row is in the snapshot of a later reader, or it is noted. At the end, when all
writers are locked out, `Watch.settle` adds the noted rows to the new table and checks that nothing
else was done to the old one.
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
from history.store.days import days
from history.store.days.canonical import Connection, list_columns, stream_versions
from history.store.days.day_locks import retry_lock, set_short_lock_timeout
from history.store.days.days import DayTable

# A row of a new table: a plain one, or the row of a block with its columns.
StoredRow: TypeAlias = tuple[CanonicalRow, BlockColumns | None]

_EPOCH: Final = 946_684_800_000_000  # of COPY's moments: 2000, in microseconds since 1970
# Noted rows are copied in portions: so many keys are looked up at once,
KEYS_AT_ONCE: Final = 5_000
# and documents with so many bytes are in memory, or one larger one.
BYTES_AT_ONCE: Final = 8 * 1024 * 1024
# Seconds for which a left trigger may wait for its table.
_STOP_WAIT_S: Final = 1.0

_TRIGGERS: Final = ("annals_note_change", "annals_note_truncate")
_WATCH: Final[LiteralString] = """
CREATE OR REPLACE TRIGGER annals_note_change AFTER INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION annals_note_change();
CREATE OR REPLACE TRIGGER annals_note_truncate AFTER TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION annals_note_change();
ALTER TABLE {table} ENABLE ALWAYS TRIGGER annals_note_change;
ALTER TABLE {table} ENABLE ALWAYS TRIGGER annals_note_truncate
"""
_STOP: Final[LiteralString] = """
DROP TRIGGER IF EXISTS annals_note_change ON {table};
DROP TRIGGER IF EXISTS annals_note_truncate ON {table}
"""
# Whoever disables a trigger, or enables it again, writes its row in the catalog: xmin changes.
_STATE: Final[LiteralString] = """
SELECT c.oid::bigint, pg_relation_filenode(c.oid)::bigint, coalesce((
    SELECT string_agg(concat_ws(' ', t.oid, t.xmin, t.tgenabled), ', ' ORDER BY t.oid)
    FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = ANY(%(triggers)s)), '')
FROM pg_class c WHERE c.oid = %(table)s::regclass
"""
_LEFT: Final[LiteralString] = """
SELECT DISTINCT n.nspname, c.relname FROM pg_trigger t
JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.tgname = ANY(%s)
"""
# The table was dropped with its triggers, or it is another one since a dump was restored.
_DROP_UNWATCHED: Final[LiteralString] = """
DELETE FROM changed_row WHERE NOT EXISTS (
    SELECT FROM pg_trigger t WHERE t.tgname = ANY(%s) AND t.tgrelid = changed_row.partition::oid)
"""
_GUARD: Final[LiteralString] = """
CREATE OR REPLACE TRIGGER annals_refuse_packed
    BEFORE INSERT OR UPDATE OF id, version, updated_at ON {table}
    FOR EACH ROW EXECUTE FUNCTION annals_refuse_packed();
ALTER TABLE {table} ENABLE ALWAYS TRIGGER annals_refuse_packed
"""
_UNGUARDED: Final[LiteralString] = """
SELECT "table", day FROM sealed_day
WHERE packed_at IS NOT NULL AND to_regclass("table" || to_char(day, '_YYYYMMDD')) IS NOT NULL
    AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'annals_refuse_packed'
        AND tgrelid = to_regclass("table" || to_char(day, '_YYYYMMDD')) AND tgenabled = 'A')
"""
_NOTED: Final[LiteralString] = (
    "SELECT DISTINCT row_id AS id, updated_at, version FROM changed_row"
    " WHERE partition = {partition} AND change = 'insert'"
)
_ALL: Final[LiteralString] = "SELECT id, updated_at, version FROM {old} WHERE packed IS NULL"
_MISSING: Final[LiteralString] = """
SELECT key.id, key.updated_at, key.version, coalesce(octet_length(old.data::text), 0)
FROM ({keys}) AS key JOIN {old} AS old USING (id, updated_at, version)
WHERE old.packed IS NULL
    AND (key.id, key.updated_at, key.version) > (%(id)s, %(moment)s, %(version)s)
    AND NOT EXISTS (SELECT FROM {versions} AS new WHERE new.id = key.id
        AND new.stored_at >= key.updated_at AND new.version = key.version
        AND new.updated_at = key.updated_at)
ORDER BY key.id, key.updated_at, key.version LIMIT {limit}
"""
_FIRST: Final = ("", datetime(1, 1, 1, tzinfo=UTC), -1)
# A day is counted in its index where so many bytes at most are in pages that are not known to be
# visible to all: of these PostgreSQL looks at each row.
UNKNOWN_BYTES: Final = 64 * 1024 * 1024
_UNKNOWN: Final[LiteralString] = (
    "SELECT pg_relation_size(oid) - relallvisible::bigint * current_setting('block_size')::int"
    " FROM pg_class WHERE oid = %s::regclass"
)


class ChangedMeanwhileError(errors.LockNotAvailable):
    """The old table of a day was changed so that its new one cannot take its place; try again."""


@dataclass(frozen=True, slots=True)
class TableWatch:
    """The old table of a day while a new one is built."""

    partition: int  # its OID
    file: int  # PostgreSQL writes a table anew into another file
    triggers: str  # their rows in the catalog

    def add_noted_rows(self, connection: Connection, entity: EntityKind, place: DayTable) -> int:
        """Add the rows that came since the watch began to the new table. Return their number.

        The new table has its indexes. In the transaction that made it.
        """
        return add_missing_rows(connection, entity, place, self.build_noted_query())

    def build_noted_query(self) -> sql.Composed:
        """Return a query for id, updated_at and version of the rows that came."""
        return sql.SQL(_NOTED).format(partition=sql.Literal(self.partition))

    def settle(self, connection: Connection, entity: EntityKind, place: DayTable) -> int:
        """Add the last noted rows, and prove that nothing else was done to the old table.

        Nobody can write to the old table any more. Return how many rows were added.

        Raises:
            ChangedMeanwhileError: rows were changed or removed, or the table was replaced, or its
                triggers were touched. A later attempt may succeed.
        """
        if _load_state(connection, place) != self:
            raise _build_changed_error(place, "its table or a trigger of it was replaced")
        row = connection.execute(
            "SELECT change, row_id, version FROM changed_row"
            " WHERE partition = %s AND change <> 'insert' ORDER BY id LIMIT 1",
            [self.partition],
        ).fetchone()
        if row is not None:
            change, id, version = row
            row_name = "" if id is None else f" of {id} version {version}"
            raise _build_changed_error(place, f"somebody did this to its rows: {change}{row_name}")
        added = self.add_noted_rows(connection, entity, place)
        connection.execute("DELETE FROM changed_row WHERE partition = %s", [self.partition])
        return added


@contextmanager
def watch_table(connection: Connection, place: DayTable) -> Iterator[TableWatch]:
    """Note all changes of a day's table from now on. At an error the noting ends.

    A process that is killed leaves the triggers; `remove_left` removes them. `connection` is in
    autocommit mode.

    Raises:
        psycopg.errors.LockNotAvailable: a transaction that wrote to the day stays open.
    """
    watch = retry_lock(lambda: _begin_watch(connection, place), days.LOCK_WAIT_S)
    try:
        yield watch
    except Exception:
        if not connection.closed:
            with suppress(psycopg.Error):
                _stop_watch(connection, place.child)
        raise


def remove_left_triggers(connection: Connection) -> None:
    """Remove the triggers that a killed process left. The caller holds the run lock.

    A table that is locked keeps them until the next call: they do no harm but note too much. What
    was noted of tables that are gone is deleted too.
    """
    for schema, name in connection.execute(_LEFT, [list(_TRIGGERS)]).fetchall():
        with suppress(errors.LockNotAvailable, errors.DeadlockDetected):
            _stop_watch(connection, sql.Identifier(schema, name))
    connection.execute(_DROP_UNWATCHED, [list(_TRIGGERS)])


def guard_table(connection: Connection, table: sql.Identifier) -> None:
    """Let a packed table refuse each row if one of its blocks has the version.

    The error is the one of the primary key (SQLSTATE 23505), so every writer knows it.
    """
    connection.execute(sql.SQL(_GUARD).format(table=table))


def guard_packed_days(connection: Connection) -> None:
    """Guard the packed days that are not: an earlier release packed them.

    The caller holds the run lock. A table that is locked waits for the next call. On a
    cluster, which has no triggers, the consumer alone looks into the blocks.
    """
    if distribution.is_distributed(connection):
        return
    for table, day in connection.execute(_UNGUARDED).fetchall():
        place = days.locate_day(connection, table, day)

        def attempt(child: sql.Identifier = place.child) -> None:
            with connection.transaction():
                set_short_lock_timeout(connection)
                guard_table(connection, child)

        with suppress(errors.LockNotAvailable, errors.DeadlockDetected):
            retry_lock(attempt, _STOP_WAIT_S)


def add_missing_rows(
    connection: Connection, entity: EntityKind, place: DayTable, keys: sql.Composable | None = None
) -> int:
    """Copy rows of the old table that the new one lacks. Return their number.

    Args:
        keys: a query for id, updated_at and version of the rows to look at; None for all.
    """
    if keys is None:
        keys = sql.SQL(_ALL).format(old=place.child)
    query = sql.SQL(_MISSING).format(
        keys=keys,
        old=place.child,
        versions=sql.SQL(queries.build_versions_query(entity, place.new.as_string(connection))),
        limit=sql.Literal(KEYS_AT_ONCE),
    )
    # Each row is found by its key.
    connection.execute(
        "SET LOCAL enable_seqscan TO off; SET LOCAL enable_hashjoin TO off;"
        "SET LOCAL enable_mergejoin TO off; SET LOCAL enable_bitmapscan TO off"
    )
    added = 0
    id, moment, version = _FIRST
    while True:
        values = {"id": id, "moment": moment, "version": version}
        missing = connection.execute(query, values).fetchall()
        for portion in _split_into_portions(missing):
            source = sql.SQL(
                "(SELECT old.* FROM {old} AS old JOIN (VALUES {keys}) AS key (id, moment, number)"
                " ON old.id = key.id AND old.updated_at = key.moment::timestamptz"
                " AND old.version = key.number) AS late"
            ).format(
                old=place.child,
                keys=sql.SQL(", ").join(
                    sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, key)))
                    for key in portion
                ),
            )
            rows = list(stream_versions(connection, entity, source, ordered=False, data="bytea"))
            added += write_rows(connection, entity, place.new, ((row, None) for row in rows))
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
        frozen: Whether a transaction that began before sees the rows too, instead of an empty day
            once the table has taken the place of another one. Only for a table that this
            transaction has made.
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
                # COPY takes the bytes of a document for JSONB, and a number for a moment.
                data = None if text is None else b"\1" + text
                plain_values = (id, version, moment - _EPOCH, *labels, data)
                copy.write_row((*plain_values, *(empty if block is None else block)))
        return cursor.rowcount


def build_copy_command(
    entity: EntityKind, table: sql.Identifier, options: LiteralString
) -> sql.Composed:
    """Return a COPY of all columns that a row of versions or a block has."""
    names = map(sql.Identifier, (*list_columns(entity), *queries.BLOCK_COLUMNS))
    return sql.SQL("COPY {} ({}) " + options).format(table, sql.SQL(", ").join(names))


def count_cheaply(connection: Connection, table: sql.Identifier, packed: bool) -> int | None:
    """Return how many versions a table has, or None where counting would take seconds.

    A packed table is small. Of a plain one the index is enough where its pages are known to be
    visible to all.
    """
    if packed:
        return queries.count_versions(connection, table)
    unknown_bytes = connection.execute(_UNKNOWN, [table.as_string(connection)]).fetchone()
    if unknown_bytes is None or unknown_bytes[0] > UNKNOWN_BYTES:
        return None
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table)).fetchone()
    return int(row[0]) if row else None


def _begin_watch(connection: Connection, place: DayTable) -> TableWatch:
    with connection.transaction():
        set_short_lock_timeout(connection)
        connection.execute(sql.SQL(_WATCH).format(table=place.child))
        watch = _load_state(connection, place)
        connection.execute("DELETE FROM changed_row WHERE partition = %s", [watch.partition])
        return watch


def _stop_watch(connection: Connection, table: sql.Identifier) -> None:
    def attempt() -> None:
        with connection.transaction():
            set_short_lock_timeout(connection)
            connection.execute(sql.SQL(_STOP).format(table=table))
            connection.execute(
                "DELETE FROM changed_row WHERE partition = %s::regclass::oid::bigint",
                [table.as_string(connection)],
            )

    retry_lock(attempt, _STOP_WAIT_S)


def _load_state(connection: Connection, place: DayTable) -> TableWatch:
    values = {"triggers": list(_TRIGGERS), "table": place.child.as_string(connection)}
    # The cast to regclass raises if there is no such table.
    return TableWatch(*require_row(connection.execute(_STATE, values).fetchone()))


def _build_changed_error(place: DayTable, reason: str) -> ChangedMeanwhileError:
    name = place.child._obj[-1]
    return ChangedMeanwhileError(
        f"{name} stays as it is, because while its new table was built {reason}. Try it again"
    )


def _split_into_portions(
    missing: Sequence[tuple[str, datetime, int, int]],
) -> Iterator[list[tuple[str, datetime, int]]]:
    """Cut rows into portions of at most BYTES_AT_ONCE, or of one larger document."""
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
