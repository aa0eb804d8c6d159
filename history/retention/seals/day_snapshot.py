"""Reads one consistent state of a day: its rows, and the notes of consumers about its late rows.

On a cluster this takes more than PostgreSQL's snapshot, because each node has a snapshot
of its own.
"""

from collections.abc import Callable
from datetime import date
from typing import Final, LiteralString, TypeVar

import psycopg
from psycopg import errors, sql

from history.retention.seals import late_rows
from history.store import distribution
from history.store.days import day_locks, days
from history.store.days.canonical import Connection
from history.store.days.day_reading import open_day

T = TypeVar("T")
# On a cluster `run_in_one_state` calls `work` at most this many times, if late rows come meanwhile.
ROUNDS: Final = 3
# How long `stop_writers` waits for its lock, as a statement_timeout. New writers wait behind it.
# lock_timeout would not do: it counts on one node only.
WAIT: Final = "1s"
_NOTED: Final[LiteralString] = (
    'SELECT count(*), max(id) FROM late_row WHERE "table" = %s AND day = %s'
)
# Counts the locks of prepared transactions that wrote to a table, on one node. Such a transaction
# does not belong to a session, and its rows become visible later.
_LEFT: Final[LiteralString] = """
SELECT count(*) FROM pg_locks JOIN pg_class ON pg_class.oid = relation
JOIN pg_dist_shard ON relname = {table} || '_' || shardid AND logicalrelid = {table}::regclass
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND pid IS NULL
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def run_in_one_state(
    connection: Connection, table: str, day: date, work: Callable[[days.DayTable], T]
) -> T:
    """Call `work` with the table of a day, in a transaction that sees one state of the day.

    On a cluster a transaction may see the nodes at different moments. So `work` is called again if
    late rows were noted meanwhile. Needs a `connection` in autocommit mode.

    Returns:
        What `work` returns.

    Raises:
        psycopg.errors.LockNotAvailable: A transaction that writes to the table stays open, or rows
            of the day keep coming.
    """
    if not distribution.is_distributed_table(connection, table):
        with open_day(connection, table, day) as day_table:
            return work(day_table)
    for _ in range(ROUNDS):
        noted_before = _load_noted(connection, table, day)
        with connection.transaction():
            result = work(days.locate_day(connection, table, day))
            if _load_noted(connection, table, day) == noted_before:
                return result
            raise psycopg.Rollback  # ends the `with` block, which does not raise it again
    raise errors.LockNotAvailable("rows of this day keep coming; run the command again later")


def start_noting(connection: Connection, day_table: days.DayTable, table: str, day: date) -> None:
    """Make writers note the message of every row that they add to the day from now on.

    Waits until the transactions that have written to the day, on any node, have ended. When this
    function returns, each row of the day is either visible already or will be noted. Needs a
    `connection` in autocommit mode.

    Raises:
        psycopg.errors.LockNotAvailable: One of these transactions stays open.
    """
    late_rows.mark_sealed_day(connection, table, day)
    if distribution.is_distributed_table(connection, table):
        day_locks.retry_lock(lambda: stop_writers(connection, table), day_locks.LOCK_WAIT_S)
    else:
        late_rows.wait_for_others(connection, [day_table.child], "RowExclusiveLock")


def _load_noted(connection: Connection, table: str, day: date) -> tuple[object, ...] | None:
    """Return the number and the highest id of the notes about late rows.

    Locks out all writers while it reads them.
    """

    def attempt() -> tuple[object, ...] | None:
        with connection.transaction():
            stop_writers(connection, table)
            return connection.execute(_NOTED, [table, day]).fetchone()

    return day_locks.retry_lock(attempt, day_locks.LOCK_WAIT_S)


def stop_writers(connection: Connection, table: str) -> None:
    """Lock the table on all nodes against writers, until the caller's transaction ends.

    The partitions of the table are not locked: writers reach a day only through the table.

    Raises:
        psycopg.errors.LockNotAvailable: A transaction that writes to the table stays open, or is
            prepared on a node and not finished.
    """
    row = connection.execute("SELECT current_setting('statement_timeout')").fetchone()
    former_timeout = row[0] if row else "0"
    set_timeout = "SELECT set_config('statement_timeout', %s, true)"
    lock = sql.SQL("LOCK TABLE ONLY {} IN SHARE MODE").format(sql.Identifier(table))
    with connection.transaction():
        days.limit_silence(connection)
        connection.execute(set_timeout, [WAIT])
        try:
            connection.execute(lock)
        except errors.QueryCanceled:
            raise errors.LockNotAvailable(
                f"a transaction that writes to {table} stays open"
            ) from None
        connection.execute(set_timeout, [former_timeout])
        left_query = sql.SQL(_LEFT).format(table=sql.Literal(table)).as_string(connection)
        if any(answer.result != "0" for answer in distribution.ask_nodes(connection, left_query)):
            raise errors.LockNotAvailable(
                f"a node has left a prepared transaction that wrote to {table}"
            )
