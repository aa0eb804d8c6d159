"""Reads a day consistently, by locking its table before PostgreSQL takes the snapshot.

In this module a snapshot is PostgreSQL's. The table of a day is replaced when the day is packed,
unpacked or restored. A transaction with a snapshot from before the replacement sees an empty table.
LOCK TABLE does not take a snapshot. So a transaction that first locks the table sees all rows of
the day: either in the old table, which is replaced only when the transaction has ended, or in the
new one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any, Final, LiteralString

import psycopg
from psycopg import errors, sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from history.store import distribution
from history.store.days import days
from history.store.days.days import DayState, DayTable

Connection = psycopg.Connection[Any]

_LOCK: Final[LiteralString] = "LOCK TABLE {} IN ACCESS SHARE MODE"
# Returns whether the transaction's snapshot has a table. The cast to regclass reads the newest
# catalogue, but the query reads the catalogue of the snapshot.
_IN_SNAPSHOT: Final[LiteralString] = "SELECT EXISTS (SELECT FROM pg_class WHERE oid = {}::regclass)"


@contextmanager
def open_day(connection: Connection, table: str, day: date) -> Iterator[DayTable]:
    """Open a day for consistent reading: all queries of the `with` block see the same rows.

    The table of the day is locked until the `with` block ends, so it cannot be replaced or
    dropped. It may have been replaced while the function waited for the lock; the yielded DayTable
    is the one that the queries see. On a cluster, a node takes the lock and PostgreSQL's snapshot
    only at the first query of the day's table.

    Args:
        connection: Must be in autocommit mode.
    """
    is_distributed = distribution.is_distributed_table(connection, table)
    while True:
        former_day_table = days.locate_day(connection, table, day)
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            # On a cluster: one session to each node, and so one snapshot of the node.
            connection.execute("SET LOCAL citus.max_adaptive_executor_pool_size TO 1")
            if not is_distributed and former_day_table.state is not DayState.ABSENT:
                try:
                    connection.execute(sql.SQL(_LOCK).format(former_day_table.child))
                except errors.UndefinedTable:  # dropped while we waited
                    raise psycopg.Rollback from None
            # The first query of the transaction: PostgreSQL takes the snapshot now.
            day_table = days.locate_day(connection, table, day)
            if not is_distributed and (former_day_table.state is DayState.ABSENT) != (
                day_table.state is DayState.ABSENT
            ):
                raise psycopg.Rollback  # created or dropped since the first locate_day
            yield day_table
            return


@contextmanager
def lock_source(connection: Connection, source: sql.Composable) -> Iterator[None]:
    """Lock `source` for reading during the `with` block.

    If no transaction is open, the function opens one for the `with` block.

    Args:
        source: A table, or a subquery with its alias.

    Raises:
        psycopg.errors.SnapshotTooOld: The open transaction began to read before a swap made this
            table the partition of the day. So the transaction cannot see the rows of the table.
    """
    if connection.info.transaction_status == TransactionStatus.IDLE:
        with connection.transaction():
            _lock_table(connection, source)
            yield
    else:
        _lock_table(connection, source)
        yield


def _lock_table(connection: Connection, source: sql.Composable) -> None:
    if not isinstance(source, sql.Identifier) or distribution.is_distributed(connection):
        connection.execute(sql.SQL("SELECT FROM {} LIMIT 0").format(source))
        return
    connection.execute(sql.SQL(_LOCK).format(source))
    name = sql.Literal(source.as_string(connection))
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        if cursor.execute(sql.SQL(_IN_SNAPSHOT).format(name)).fetchone() != (True,):
            raise errors.SnapshotTooOld(
                f"{source.as_string(connection)} was replaced after this transaction began to read"
            )
