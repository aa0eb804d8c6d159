"""Finds, creates, replaces and drops the partition of one UTC day. Needs only psycopg."""

import re
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import date, timedelta
from enum import Enum
from itertools import chain, repeat
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import errors, sql

from history.common.explained_errors import ExplainedError
from history.common.single_row import require_row
from history.store import distribution
from history.store.days import day_locks
from history.store.days.day_locks import (
    LOCK_TIMEOUT_MS,
    exclude_autovacuum,
    hold_day_lock,
    lock_day,
    override_lock_timeout,
    retry_lock,
    set_short_lock_timeout,
)

# Rows stay whole and uncompressed if a page can hold them, because compressing documents is the
# largest part of storing them (docs/decisions/0031-compression.md).
WHOLE_ROWS = sql.SQL("toast_tuple_target = 8160")
# psqlextra's comment on a partition that a program created. Annals never drops a partition without
# this comment.
MARK = "psqlextra_auto_partitioned"
# The comment on a partition that was restored from the archive. `maintain` does not drop it before
# `release_day`.
RESTORED = "annals_restored"

# A swap replaces the table of a day by another one. Once it has the locks of both tables, it waits
# this long for autovacuum to leave their TOAST tables.
SWAP_TIMEOUT_MS = 5_000
# How long a swap on a cluster waits for a lock in its first attempt, and in all later attempts. The
# first wait is as long as pages of applications take on a cluster. The later ones are long enough
# for PostgreSQL to cancel an autovacuum of the day, which it does after deadlock_timeout (1 s).
CLUSTER_WAITS_MS = 500, 2_000
# A swap that holds its locks and sends no statement for this long is ended: its process may be
# frozen or cut off from the server, and all readers and writers wait. Usually a swap needs
# milliseconds between two statements.
SILENT_MS = 30_000

Connection = psycopg.Connection[Any]

# Returns whether the table of a day exists and is a partition of its parent, with its comment, and
# the column by which the parent is partitioned.
_LOCATE_DAY = """
SELECT space.nspname, child.oid IS NOT NULL, link.inhparent IS NOT NULL, link.inhdetachpending,
    obj_description(child.oid, 'pg_class'),
    (SELECT attname FROM pg_attribute
     WHERE attrelid = parent.oid AND attnum = partitioned.partattrs[0])
FROM pg_class parent JOIN pg_namespace space ON space.oid = parent.relnamespace
JOIN pg_partitioned_table partitioned ON partitioned.partrelid = parent.oid
LEFT JOIN pg_class child
    ON child.relname = %(name)s AND child.relnamespace = parent.relnamespace
LEFT JOIN pg_inherits link ON link.inhrelid = child.oid AND link.inhparent = parent.oid
WHERE parent.oid = %(table)s::regclass
"""

# Selects the days that an attached partition covers completely.
# It reads only the bounds of partitions with the name of a requested day, or with a name that is
# not of a day: the bounds of all partitions would take longer than storing some thousands of rows.
# pg_get_expr gets 0 instead of the table's oid, see history.retention.catalog.
_ATTACHED = """
WITH part AS MATERIALIZED (
    SELECT inhparent AS parent,
        CASE bound[1] WHEN 'MINVALUE' THEN '-infinity' ELSE trim($$'$$ FROM bound[1]) END
            ::timestamptz AS start,
        CASE bound[2] WHEN 'MAXVALUE' THEN 'infinity' ELSE trim($$'$$ FROM bound[2]) END
            ::timestamptz AS stop
    FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
    CROSS JOIN LATERAL regexp_match(pg_get_expr(relpartbound, 0),
        $$^FOR VALUES FROM \\((MINVALUE|'[^']+')\\) TO \\((MAXVALUE|'[^']+')\\)$$) AS bound
    WHERE inhparent = ANY(%(tables)s::regclass[]) AND NOT inhdetachpending
        AND (relname = ANY(%(names)s) OR relname !~ '_[0-9]{8}$')
)
SELECT number FROM unnest(%(tables)s::regclass[], %(starts)s::timestamptz[],
    %(stops)s::timestamptz[]) WITH ORDINALITY AS requested(parent, start, stop, number)
WHERE EXISTS (SELECT FROM part WHERE part.parent = requested.parent
    AND part.start <= requested.start AND part.stop >= requested.stop)
"""

# Returns the indexes of a replaced table with the names that they should have. An index is left out
# if its name is taken, for example by a second index on the same columns.
_RENAMES = """
SELECT DISTINCT ON (lasting) former, lasting FROM (
    SELECT i.relname AS former, i.relnamespace AS space,
        regexp_replace(i.relname, '^' || %(name)s || '_new_(.*(pkey|idx|key))[0-9]*$',
            %(name)s || '_\\1') AS lasting
    FROM pg_index JOIN pg_class i ON i.oid = indexrelid
    WHERE indrelid = %(child)s::regclass
) AS renamed
WHERE former <> lasting AND NOT EXISTS (SELECT FROM pg_class taken
    WHERE taken.relname = lasting AND taken.relnamespace = space)
ORDER BY lasting, former
"""


class DayState(Enum):
    """The state of the table of a day: whether it exists, and whether it is a partition."""

    ABSENT = "absent"
    ATTACHED = "attached"
    PENDING = "pending"  # DETACH CONCURRENTLY was interrupted; FINALIZE completes it
    DETACHED = "detached"


class ForeignTableError(ExplainedError, RuntimeError):
    """Raised if a table with the name of a day's partition was not created by Annals."""


class DefaultPartitionError(ForeignTableError):
    """Raised if a day cannot be attached because a default partition has rows of the day."""

    def __init__(self, day_table: "DayTable", day: date, default: sql.Identifier) -> None:
        table, default_table = (
            name.as_string().replace('"', "") for name in (day_table.parent, default)
        )
        super().__init__(
            f"the default partition {default_table} of {table} has rows of {day}, so that day "  # noqa: S608 - for people
            "cannot have a partition of its own. Annals does not make default partitions. As the "
            f"owner of the tables: ALTER TABLE {table} DETACH PARTITION {default_table}; then "
            "`annals partitions maintain`; "
            f"then move its rows back by INSERT INTO {table} SELECT * FROM {default_table}, "
            "and drop it"
        )


class DayTable(NamedTuple):
    """The names and the state of the table of one day. All names are quoted and have a schema."""

    parent: sql.Identifier  # the partitioned table
    child: sql.Identifier  # the table of the day
    new: sql.Identifier  # the table that replaces the child in a swap; it need not exist
    state: DayState
    comment: str | None
    key: sql.Identifier  # the column that says to which day a row belongs

    @property
    def is_droppable(self) -> bool:
        """Whether Annals created the table and did not restore it from the archive."""
        return self.comment == MARK

    @property
    def is_created_by_annals(self) -> bool:
        return self.comment in (MARK, RESTORED)


def build_partition_name(table: str, day: date) -> str:
    """Return the name of a day's partition: `product_instance_aud_20251121`."""
    return f"{table}_{day:%Y%m%d}"


def compute_bounds(day: date) -> tuple[str, str]:
    """Return the first moments of the day and of the next day as texts with an offset."""
    return f"{day.isoformat()} 00:00:00+00", f"{(day + timedelta(1)).isoformat()} 00:00:00+00"


def create_partition(
    connection: Connection, table: str, day: date, wait_s: float = day_locks.LOCK_WAIT_S
) -> bool:
    """Create the partition of a day. If the table of the day is detached, attach it instead.

    Several processes may do this at once. Other sessions can read and write meanwhile. Needs a
    `connection` in autocommit mode.

    Returns:
        False if the day had an attached partition already.

    Raises:
        psycopg.errors.LockNotAvailable: The locks were not available for `wait_s` seconds.
        ForeignTableError: The partition's name belongs to a table that Annals did not create.
    """
    name = build_partition_name(table, day)

    def attempt() -> bool:
        if locate_day(connection, table, day).state is DayState.PENDING:
            # A running drop holds this lock, and completes its detach itself.
            with hold_day_lock(connection, name):
                if locate_day(connection, table, day).state is DayState.PENDING:
                    finalize_detach(connection, table, day)
        with connection.transaction():
            lock_day(connection, name)
            day_table = locate_day(connection, table, day)
            if day_table.state is DayState.ATTACHED:
                return False
            if day_table.state is DayState.ABSENT:
                create_detached_table(connection, day_table, day)
            elif not day_table.is_created_by_annals:
                raise ForeignTableError(f"{name} is a table that Annals did not create")
            attach_table(connection, day_table, day)
            return True

    return retry_lock(attempt, wait_s)


def drop_partition(
    connection: Connection,
    table: str,
    day: date,
    wait_s: float | None = None,
    confirm: Callable[[DayTable], None] = lambda _: None,
    report_wait: Callable[[float], None] = lambda _: None,
) -> bool:
    """Detach the partition of a day and drop it. Return False if the day does not have one.

    Other sessions can read and write the other days meanwhile. Needs a `connection` in autocommit
    mode.

    Args:
        confirm: Called when the day is detached, so that no writer can add rows to it. If it
            raises, the day is attached again.
        report_wait: Called with the seconds that the detach took, including the wait for locks.

    Raises:
        psycopg.errors.LockNotAvailable: An open transaction delays the detach for `wait_s` seconds.
            The next call completes it.
        ForeignTableError: Annals did not create the partition.
    """
    name, began = build_partition_name(table, day), time.monotonic()
    wait_s = day_locks.LOCK_WAIT_S if wait_s is None else wait_s

    def attempt() -> bool:
        with hold_day_lock(connection, name):
            day_table = locate_day(connection, table, day)
            if day_table.state is DayState.ABSENT:
                return False
            if not day_table.is_droppable:
                raise ForeignTableError(f"{name} is a partition that Annals did not create")
            if day_table.state is DayState.ATTACHED:
                _detach_table(connection, day_table, wait_s)
                report_wait(time.monotonic() - began)
            elif day_table.state is DayState.PENDING:
                finalize_detach(connection, table, day)
            try:
                confirm(day_table)
            except Exception:
                _attach_again(connection, day_table, day)
                raise
            with override_lock_timeout(connection, LOCK_TIMEOUT_MS), connection.transaction():
                connection.execute(sql.SQL("DROP TABLE {}").format(day_table.child))
                _record_drop(connection, table, day)
            return True

    return retry_lock(attempt, wait_s)


def locate_day(connection: Connection, table: str, day: date) -> DayTable:
    """Find the table of a day and its state.

    Raises:
        psycopg.errors.UndefinedTable: `table` does not exist.
    """
    row = connection.execute(
        _LOCATE_DAY, {"name": build_partition_name(table, day), "table": table}
    ).fetchone()
    # The cast to regclass raises if there is no such table.
    schema, exists, linked, pending, comment, key = require_row(row)
    if not exists:
        state = DayState.ABSENT
    elif not linked:
        state = DayState.DETACHED
    else:
        state = DayState.PENDING if pending else DayState.ATTACHED
    return DayTable(
        parent=sql.Identifier(schema, table),
        child=sql.Identifier(schema, build_partition_name(table, day)),
        new=sql.Identifier(schema, f"{build_partition_name(table, day)}_new"),
        state=state,
        comment=comment,
        key=sql.Identifier(key),
    )


def find_attached(
    connection: Connection, requested_days: Collection[tuple[str, date]]
) -> set[tuple[str, date]]:
    """Return the days (table and UTC day) that an attached partition covers completely.

    Runs one query. The partition may be longer than the day. A default partition does not count.
    """
    table_days = list(requested_days)
    days = [compute_bounds(day) for _, day in table_days]
    values = {
        "tables": [table for table, _ in table_days],
        "names": [build_partition_name(table, day) for table, day in table_days],
        "starts": [start for start, _ in days],
        "stops": [stop for _, stop in days],
    }
    return {table_days[number - 1] for (number,) in connection.execute(_ATTACHED, values)}


def load_sealed_days(
    connection: Connection, table: str, requested_days: Sequence[date]
) -> dict[date, bool]:
    """Return which of these days are sealed or packed. The value says whether the day is packed."""
    if not requested_days:
        return {}
    rows: list[tuple[date, bool]] = connection.execute(
        'SELECT day, packed_at IS NOT NULL FROM sealed_day WHERE "table" = %s AND day = ANY(%s)',
        (table, list(requested_days)),
    ).fetchall()
    return dict(rows)


def is_packed(connection: Connection, table: str, day: date) -> bool:
    """Return whether a day is packed: then its table can have blocks."""
    return load_sealed_days(connection, table, [day]).get(day, False)


def create_detached_table(
    connection: Connection, day_table: DayTable, day: date, mark: str = MARK
) -> None:
    """Create the table of a day with all properties of its parent, but do not attach it.

    Its CHECK constraint proves that all rows are of the day, so ATTACH need not read them.
    """
    command = sql.SQL(
        "CREATE TABLE {child} (LIKE {parent} INCLUDING ALL EXCLUDING IDENTITY,"
        " CONSTRAINT in_day CHECK ({key} >= {start} AND {key} < {end})) WITH ({whole})"
    )
    names = {
        "child": day_table.child,
        "parent": day_table.parent,
        "key": day_table.key,
        "whole": WHOLE_ROWS,
    }
    connection.execute(command.format(**names, **_build_bound_literals(day)))
    set_mark(connection, day_table, mark)


def release_day(connection: Connection, table: str, day: date) -> bool:
    """Let `maintain` drop a restored day like any other. Return False if it was not restored."""
    with connection.transaction():
        lock_day(connection, build_partition_name(table, day))
        day_table = locate_day(connection, table, day)
        if day_table.comment != RESTORED:
            return False
        set_mark(connection, day_table, MARK)
        return True


def set_mark(connection: Connection, day_table: DayTable, mark: str) -> None:
    """Set the comment of a day's table.

    Args:
        mark: MARK: Annals created the table and may drop it. RESTORED: Annals restored the table
            from the archive, and `partitions maintain` does not drop it.
    """
    connection.execute(
        sql.SQL("COMMENT ON TABLE {} IS {}").format(day_table.child, sql.Literal(mark))
    )


def attach_table(connection: Connection, day_table: DayTable, day: date) -> None:
    """Attach a detached table of a day, in the caller's transaction.

    Its indexes become parts of the parent's indexes. On a cluster its rows are copied to the
    workers.

    Raises:
        DefaultPartitionError: A default partition has rows of the day.
    """
    distribution.use_one_connection(connection)
    try:
        connection.execute(
            sql.SQL(
                "ALTER TABLE {parent} ATTACH PARTITION {child} FOR VALUES FROM ({start}) TO ({end})"
            ).format(parent=day_table.parent, child=day_table.child, **_build_bound_literals(day))
        )
    except errors.CheckViolation as error:
        # For rows of the day itself PostgreSQL names the table of the day.
        violating_table = _identify_violating_table(error, day_table)
        if violating_table is None or violating_table == day_table.child:
            raise
        raise DefaultPartitionError(day_table, day, violating_table) from error
    connection.execute(
        sql.SQL("ALTER TABLE {} DROP CONSTRAINT IF EXISTS in_day").format(day_table.child)
    )
    distribution.free_coordinator(connection, day_table.child)


# Matches the name of a shard in the message of a node: a table and a number, in the quotes of any
# language.
_SHARD_NAME: Final = re.compile(r'["«](.+)_\d+["»]')


def _identify_violating_table(
    error: errors.CheckViolation, day_table: DayTable
) -> sql.Identifier | None:
    """Return the name of the table with rows outside the bounds, or None if it is not known.

    A server names the table in fields of the error. Citus passes on only the message of a node, so
    there the name is taken from the message.
    """
    if error.diag.schema_name is not None and error.diag.table_name is not None:
        return sql.Identifier(error.diag.schema_name, error.diag.table_name)
    shard = _SHARD_NAME.search(error.diag.message_primary or "")
    if shard is None:
        return None
    # The message does not name the schema. Usually a partition is in the schema of its parent.
    return sql.Identifier(day_table.parent._obj[0], shard[1])


def finalize_detach(connection: Connection, table: str, day: date) -> None:
    """Complete an interrupted detach, so that the table of the day is detached."""
    day_table = locate_day(connection, table, day)
    with override_lock_timeout(connection, LOCK_TIMEOUT_MS):
        connection.execute(
            sql.SQL("ALTER TABLE {} DETACH PARTITION {} FINALIZE").format(
                day_table.parent, day_table.child
            )
        )


def replace_table(
    connection: Connection,
    table: str,
    day: date,
    merge: Callable[[DayTable], None] = lambda _: None,
) -> None:
    """Attach DayTable.new as the partition of a day, in the caller's transaction.

    The former partition is locked against all readers and writers. Then `merge` is called. Then the
    former partition is dropped, and DayTable.new takes its place.

    Raises:
        psycopg.errors.LockNotAvailable: The lock was not available for LOCK_WAIT_S seconds.
        ForeignTableError: Annals did not create the partition.
    """
    if distribution.is_distributed(connection):
        replace_distributed_table(connection, table, day, merge=merge)
        return
    name = build_partition_name(table, day)

    def lock() -> None:
        with connection.transaction():
            lock_day(connection, name)
            day_table = locate_day(connection, table, day)
            if day_table.state is not DayState.ABSENT:
                exclude_autovacuum(connection, day_table.child)  # before readers have to wait
            lock_table = sql.SQL("LOCK TABLE ONLY {} IN ACCESS EXCLUSIVE MODE")
            connection.execute(lock_table.format(day_table.parent))
            if day_table.state is not DayState.ABSENT:
                connection.execute(lock_table.format(day_table.child))

    limit_silence(connection)
    retry_lock(lock, day_locks.LOCK_WAIT_S)
    # The swap is not in a savepoint: COPY can freeze rows only in the transaction that made their
    # table.
    connection.execute(f"SET LOCAL lock_timeout = {SWAP_TIMEOUT_MS}".encode())
    _swap_tables(connection, table, day, merge)


def replace_distributed_table(
    connection: Connection,
    table: str,
    day: date,
    prepare: Callable[[], None] = lambda: None,
    *,
    merge: Callable[[DayTable], None] = lambda _: None,
) -> None:
    """Replace the table of a day on a cluster. See `replace_table`.

    Only the DETACH locks the table on all nodes.

    Args:
        prepare: Called first in each attempt, while other sessions can still read the table.
    """

    first_ms, later_ms = CLUSTER_WAITS_MS
    waits_ms = chain([first_ms], repeat(later_ms))

    def merge_locked(day_table: DayTable) -> None:
        set_short_lock_timeout(connection, SWAP_TIMEOUT_MS)
        merge(day_table)

    def swap() -> None:
        with connection.transaction():
            limit_silence(connection)
            # Set before the DETACH, which must use the same connections as all later statements.
            distribution.use_one_connection(connection)
            prepare()
            lock_day(connection, build_partition_name(table, day), next(waits_ms))
            _swap_tables(connection, table, day, merge_locked)

    retry_lock(swap, day_locks.LOCK_WAIT_S)


def limit_silence(connection: Connection) -> None:
    """Let the server end the caller's transaction if the caller sends nothing for SILENT_MS.

    This also frees the locks of the transaction.
    """
    connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {SILENT_MS}".encode())


def _swap_tables(
    connection: Connection, table: str, day: date, merge: Callable[[DayTable], None]
) -> None:
    """Replace the table of a day by `DayTable.new`. The caller holds the locks of `replace_table`.

    Args:
        merge: Called when the former table is detached and not dropped yet. It can compare the
            rows of the former table with `DayTable.new`, and copy rows to `DayTable.new`.
    """
    day_table = locate_day(connection, table, day)
    if day_table.state is not DayState.ABSENT:
        if not day_table.is_created_by_annals:
            raise ForeignTableError(
                f"{build_partition_name(table, day)} is a table that Annals did not create"
            )
        if day_table.state is DayState.ATTACHED:
            command = sql.SQL("ALTER TABLE {} DETACH PARTITION {}")
            connection.execute(command.format(day_table.parent, day_table.child))
        merge(day_table)
        connection.execute(sql.SQL("DROP TABLE {}").format(day_table.child))
    name = build_partition_name(table, day)
    rename = sql.SQL("ALTER TABLE {} RENAME TO {}")
    connection.execute(rename.format(day_table.new, sql.Identifier(name)))
    _rename_indexes(connection, day_table.child, name)
    attach_table(connection, day_table, day)


def _rename_indexes(connection: Connection, child: sql.Identifier, name: str) -> None:
    """Rename the indexes of a table that has just replaced the table of a day.

    The indexes get the names that the indexes of the former table had. Otherwise the names would
    get a new number with every swap. On a cluster the consumer recognizes a repeated row only by
    the name of the primary key.

    Args:
        child: The table.
        name: The name of the day's partition, with which the names of the indexes begin.
    """
    renames = connection.execute(
        _RENAMES, {"child": child.as_string(connection), "name": name}
    ).fetchall()
    for former, lasting in renames:
        connection.execute(
            sql.SQL("ALTER INDEX {} RENAME TO {}").format(
                sql.Identifier(child._obj[0], former), sql.Identifier(lasting)
            )
        )


def _attach_again(connection: Connection, day_table: DayTable, day: date) -> None:
    """Undo a detach. If the locks are not available, the next run of `maintain` undoes it."""
    with (
        suppress(errors.LockNotAvailable),
        override_lock_timeout(connection, LOCK_TIMEOUT_MS),
        connection.transaction(),
    ):
        attach_table(connection, day_table, day)


def _record_drop(connection: Connection, table: str, day: date) -> None:
    """Record that `maintain` dropped a day, and delete the notes about its rows.

    So `partitions verify` does not report that the rows of a sealed day are missing.
    """
    connection.execute(
        "UPDATE sealed_day SET dropped_at = now(), packed_at = NULL"
        ' WHERE "table" = %s AND day = %s',
        [table, day],
    )
    connection.execute(
        'DELETE FROM late_row WHERE "table" = %s AND day = %s AND NOT sealed', [table, day]
    )
    for note_table in ("pack_attempt", "doubled_version"):
        connection.execute(
            sql.SQL('DELETE FROM {} WHERE "table" = %s AND day = %s').format(
                sql.Identifier(note_table)
            ),
            [table, day],
        )


def _detach_table(connection: Connection, day_table: DayTable, wait_s: float) -> None:
    """Run DETACH CONCURRENTLY. It waits for open transactions and does not block others."""
    command = sql.SQL("ALTER TABLE {} DETACH PARTITION {}").format(
        day_table.parent, day_table.child
    )
    try:
        with override_lock_timeout(connection, int(wait_s * 1000)):
            connection.execute(command + sql.SQL(" CONCURRENTLY"))
    except (errors.FeatureNotSupported, errors.InternalError_):  # Citus has only the plain DETACH
        with connection.transaction():
            set_short_lock_timeout(connection)
            connection.execute(command)


def _build_bound_literals(day: date) -> dict[str, sql.Literal]:
    start, end = compute_bounds(day)
    return {"start": sql.Literal(start), "end": sql.Literal(end)}
