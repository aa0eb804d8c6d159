"""Tables by day for sent or processed rows: 32 tables in a ring, emptied by TRUNCATE."""

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import psycopg

logger = logging.getLogger(__name__)

TABLE_COUNT = 32
# A table must be empty before the ring reaches it again; this leaves two days to empty it.
MOST_KEEP_DAYS = TABLE_COUNT - 4
_SECONDS = 86_400

# SQL for the number of the table of a `recorded_at`. It rounds down, as the Python code does.
SLOT = f"mod(floor(extract(epoch FROM recorded_at) / {_SECONDS})::bigint, {TABLE_COUNT})"


def select_slots(oldest: datetime, newest: datetime) -> list[int]:
    """Return the numbers of the tables with rows recorded between two moments, both included."""
    first, last = _count_days(oldest), _count_days(newest)
    return sorted(
        {day % TABLE_COUNT for day in range(first, min(last, first + TABLE_COUNT - 1) + 1)}
    )


def select_expired_slots(now: datetime, keep_days: int) -> Iterable[int]:
    """Return the numbers of the tables for days that ended more than `keep_days` days ago.

    The table of tomorrow is not among them.
    """
    today = _count_days(now)
    return [(today - age) % TABLE_COUNT for age in range(keep_days + 1, TABLE_COUNT - 1)]


def _count_days(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp() // _SECONDS)


# All writers wait while the table is locked, so the lock may last only a moment.
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
    """Truncate the tables of a ring that are older than `keep_days`, and return their names.

    A table that is in use is skipped until the next call.

    Args:
        ring: The common prefix of the tables.
        needed: SQL that says whether a {table} still has rows that are needed.
        beat: Called before each table that is not empty, because each one can take a second.
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
            # Lock before asking, so that no row is added after the answer.
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
            if connection.execute(needed_query.format(table=table).encode()).fetchone() != (False,):
                logger.warning("%s stays: it has rows that are still needed", table)
                return False
            connection.execute(f"TRUNCATE {table}".encode())
    except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
        logger.info("%s stays for another hour: it is in use", table)
        return False
    except psycopg.errors.InsufficientPrivilege as error:
        # The other work of the process is more important than this table.
        text = "%s stays: GRANT SELECT, TRUNCATE on it to this process's role (%s)"
        logger.warning(text, table, str(error).strip())
        return False
    logger.info("%s is empty: its day is over", table)
    return True
