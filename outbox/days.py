"""Day partitions of what is sent or processed: a ring of tables that are emptied by TRUNCATE."""

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import psycopg

logger = logging.getLogger(__name__)

SLOTS = 32
# A table must be empty before its number comes again; two days are left to empty it.
MOST_DAYS = SLOTS - 4
_SECONDS = 86_400

# SQL: the number of the table for a recorded_at. Rounded down, as _day() does.
SLOT = f"mod(floor(extract(epoch FROM recorded_at) / {_SECONDS})::bigint, {SLOTS})"


def slots(oldest: datetime, newest: datetime) -> list[int]:
    """The tables that hold what was recorded between two moments, both included."""
    first, last = _day(oldest), _day(newest)
    return sorted({day % SLOTS for day in range(first, min(last, first + SLOTS - 1) + 1)})


def expired(now: datetime, keep_days: int) -> Iterable[int]:
    """The tables whose newest day is over for more than keep_days; not the one for tomorrow."""
    today = _day(now)
    return [(today - age) % SLOTS for age in range(keep_days + 1, SLOTS - 1)]


def _day(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp() // _SECONDS)


# Everybody else waits as long as the table is locked.
_TIMEOUTS = """
SET LOCAL lock_timeout = '200ms'; SET LOCAL statement_timeout = '1s';
SET LOCAL idle_in_transaction_session_timeout = '10s'
"""


def clean(
    connection: psycopg.Connection[tuple[Any, ...]],
    ring: str,
    keep_days: int,
    needed: str,
    beat: Callable[[], None] = lambda: None,
) -> list[str]:
    """Truncate the tables of a ring that are older than keep_days; their names. A table that
    somebody uses is left for the next time. needed: SQL, whether a {table} must stay. beat: is
    called before each table that is not empty, because each can take a second."""
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    tables = [f"{ring}_{slot:02}" for slot in expired(row[0], keep_days)] if row else []
    return [table for table in tables if _empty(connection, table, needed, beat)]


def _empty(
    connection: psycopg.Connection[tuple[Any, ...]],
    table: str,
    needed: str,
    beat: Callable[[], None],
) -> bool:
    try:
        one = f"SELECT FROM {table} LIMIT 1"
        found = connection.execute(one.encode()).fetchone()
        if found is None:
            return False
        beat()
        with connection.transaction():
            connection.execute(_TIMEOUTS)
            # Before the question, so that nothing comes in after the answer.
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
            if connection.execute(needed.format(table=table).encode()).fetchone() != (False,):
                logger.warning("%s stays: it has rows that are still needed", table)
                return False
            connection.execute(f"TRUNCATE {table}".encode())
    except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
        logger.info("%s stays for another hour: it is in use", table)
        return False
    except psycopg.errors.InsufficientPrivilege as error:
        # What else the process does is more important.
        text = "%s stays: GRANT SELECT, TRUNCATE on it to this process's role (%s)"
        logger.warning(text, table, str(error).strip())
        return False
    logger.info("%s is empty: its day is over", table)
    return True
