"""Stores rows in 32 tables by day.

The tables are used in turn: day n since 1970 is stored in table n modulo 32. A table with rows
of an old day is truncated before the table is used again.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import psycopg

logger = logging.getLogger(__name__)

TABLE_COUNT = 32
# A table must be empty before it is used again. This limit leaves two days to empty it.
MOST_KEEP_DAYS = TABLE_COUNT - 4
_SECONDS = 86_400

# The SQL that computes the number of the table from `recorded_at`. Like the Python code, it rounds
# down.
SLOT = f"mod(floor(extract(epoch FROM recorded_at) / {_SECONDS})::bigint, {TABLE_COUNT})"


def select_slots(oldest: datetime, newest: datetime) -> list[int]:
    """Return the numbers of the tables that hold the days from `oldest` to `newest`, inclusive."""
    first, last = _count_days(oldest), _count_days(newest)
    return sorted(
        {day % TABLE_COUNT for day in range(first, min(last, first + TABLE_COUNT - 1) + 1)}
    )


def select_expired_slots(now: datetime, keep_days: int) -> Iterable[int]:
    """Return the numbers of the tables for days that ended more than `keep_days` days ago.

    The tables are used in turn, so the table for tomorrow was also the table for the day 31 days
    ago. That table is left out, because rows of tomorrow can soon be written to it.
    """
    today = _count_days(now)
    return [(today - age) % TABLE_COUNT for age in range(keep_days + 1, TABLE_COUNT - 1)]


def _count_days(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp() // _SECONDS)


# All writers wait while a table is locked, so the lock may last only a moment.
_LOCK_TIMEOUTS = """
SET LOCAL lock_timeout = '200ms'; SET LOCAL statement_timeout = '1s';
SET LOCAL idle_in_transaction_session_timeout = '10s'
"""


def truncate_expired_tables(
    connection: psycopg.Connection[tuple[Any, ...]],
    ring: str,
    keep_days: int,
    needed_query: str,
    show_life: Callable[[], None] = lambda: None,
) -> list[str]:
    """Truncate the tables for days that ended more than `keep_days` days ago.

    A table that is locked, or that has needed rows, is skipped until the next call.

    Args:
        ring: The common prefix of the tables' names.
        needed_query: A query, with a placeholder {table}, that returns whether a table still has
            rows that are needed.
        show_life: Called before each table that is not empty, to show that the process is alive: a
            table can take a second.

    Returns:
        The names of the truncated tables.
    """
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    tables = (
        [f"{ring}_{slot:02}" for slot in select_expired_slots(row[0], keep_days)] if row else []
    )
    return [
        table for table in tables if _truncate_table(connection, table, needed_query, show_life)
    ]


def _truncate_table(
    connection: psycopg.Connection[tuple[Any, ...]],
    table: str,
    needed_query: str,
    show_life: Callable[[], None],
) -> bool:
    try:
        first_row_query = f"SELECT FROM {table} LIMIT 1"
        first_row = connection.execute(first_row_query.encode()).fetchone()
        if first_row is None:
            return False
        show_life()
        with connection.transaction():
            connection.execute(_LOCK_TIMEOUTS)
            # Lock first, so that no row can be added after the query.
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
            if connection.execute(needed_query.format(table=table).encode()).fetchone() != (False,):
                logger.warning("%s is not emptied: it has rows that are still needed", table)
                return False
            connection.execute(f"TRUNCATE {table}".encode())
    except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
        logger.info("%s is in use and was not emptied; the next attempt is in an hour", table)
        return False
    except psycopg.errors.InsufficientPrivilege as error:
        # Not an error: the other work of the process is more important than this table.
        text = "%s is not emptied: GRANT SELECT, TRUNCATE on it to this process's role (%s)"
        logger.warning(text, table, str(error).strip())
        return False
    logger.info("%s was emptied, because its day has expired", table)
    return True
