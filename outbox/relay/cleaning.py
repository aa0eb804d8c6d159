"""Empties the tables of days that are over, if all of their versions are sent."""

from __future__ import annotations

import logging
from collections.abc import Callable

import psycopg

from outbox import ring
from outbox.relay.database import Connection
from outbox.status import WAITING

logger = logging.getLogger(__name__)

# Writers wait as long as the table is locked, and the beat of the relay waits for all of it.
_TIMEOUTS = "SET LOCAL lock_timeout = '200ms'; SET LOCAL statement_timeout = '1s'"
_WAITS = f"""
SELECT EXISTS (
    SELECT FROM {WAITING} AS d JOIN {{table}} AS m ON m.document = d.key AND m.version > d.sent
)
"""  # noqa: S608 - our own constant


def clean(connection: Connection, keep_days: int, beat: Callable[[], None]) -> list[str]:
    """Truncate what is older than keep_days; the names of the tables. A table with a version that
    is not sent stays, and one that somebody uses is left for the next time. beat: is called before
    each table that is not empty, because each can take a second."""
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    slots = ring.expired(row[0], keep_days) if row else ()
    return [ring.table(slot) for slot in slots if _empty(connection, ring.table(slot), beat)]


def _empty(connection: Connection, table: str, beat: Callable[[], None]) -> bool:
    try:
        found = connection.execute(f"SELECT EXISTS (SELECT FROM {table})").fetchone()  # noqa: S608
        if found != (True,):
            return False
        beat()
        with connection.transaction():
            connection.execute(_TIMEOUTS)
            # Before the question, so that nothing comes in after the answer.
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            if connection.execute(_WAITS.format(table=table)).fetchone() != (False,):
                logger.warning("%s stays: it has versions that are not sent", table)
                return False
            connection.execute(f"TRUNCATE {table}")
    except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
        logger.info("%s stays for another hour: it is in use", table)
        return False
    except psycopg.errors.InsufficientPrivilege as error:
        # Sending is more important.
        logger.warning("%s stays: GRANT SELECT, TRUNCATE on it to the relay's role (%s)",
                     table, str(error).strip())  # fmt: skip
        return False
    logger.info("%s is empty: its day is over", table)
    return True
