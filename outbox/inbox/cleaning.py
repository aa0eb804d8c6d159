"""Empties the tables of days on which nothing was processed that must still be known."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import OperationalError, connections, transaction

from outbox import ring

logger = logging.getLogger(__name__)

# Consumers wait as long as the table is locked.
_TIMEOUTS = "SET LOCAL lock_timeout = '200ms'; SET LOCAL statement_timeout = '1s'"


def clean(keep_days: int, alias: str) -> list[str]:
    """Truncate what is older than keep_days; the names of the tables. One that somebody uses is
    left for the next time."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        [now] = cursor.fetchone()
    tables = [ring.table(slot, "inbox_done") for slot in ring.expired(now, keep_days)]
    since = now - timedelta(days=keep_days)
    return [table for table in tables if _empty(table, since, alias)]


def _empty(table: str, since: datetime, alias: str) -> bool:
    with connections[alias].cursor() as cursor:
        cursor.execute(f"SELECT EXISTS (SELECT FROM {table})")  # noqa: S608 - our own constant
        if cursor.fetchone() != (True,):
            return False
    try:
        # After the clock went back, the table of an old day can be that of a day to come.
        if _has_newer(table, since, alias):
            logger.warning("%s stays: it has keys of later days", table)
            return False
        with transaction.atomic(using=alias, durable=True), connections[alias].cursor() as cursor:
            cursor.execute(_TIMEOUTS)
            cursor.execute(f"TRUNCATE {table}")
    except OperationalError as error:
        logger.info("%s stays for now: %s", table, str(error).strip())
        return False
    logger.info("%s is empty: its day is over", table)
    return True


def _has_newer(table: str, since: datetime, alias: str) -> bool:
    with transaction.atomic(using=alias, durable=True), connections[alias].cursor() as cursor:
        # The session may have the limit of a handler, and this reads the whole table.
        cursor.execute("SET LOCAL statement_timeout = 0")
        cursor.execute(f"SELECT EXISTS (SELECT FROM {table} WHERE done_at > %s)", [since])  # noqa: S608
        return bool(cursor.fetchone() == (True,))
