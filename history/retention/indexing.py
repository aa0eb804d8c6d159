"""Adds the change indexes to days that were created before these indexes existed.

history/store/change_indexes.py says which indexes these are.
"""

from __future__ import annotations

import math
import time

import psycopg

from history.kinds.entities import ENTITIES
from history.retention.runs import StepResult
from history.store import change_indexes
from history.store.days.canonical import Connection
from history.store.days.day_locks import LOCK_WAIT_S, override_lock_timeout


def add_missing_indexes(
    connection: Connection, result: StepResult, seconds: float = math.inf
) -> int:
    """Create the indexes that days lack, newest days first, and return how many were created.

    Other sessions can read and write meanwhile. Needs the run lock, and a `connection` in
    autocommit mode.

    Args:
        result: Gets the failures: days that stay locked, and indexes that were interrupted. The
            next run tries these again.
        seconds: After this time no further index is begun.
    """
    created_count, end = 0, time.monotonic() + seconds
    for missing in change_indexes.find_missing(connection, [entity.table for entity in ENTITIES]):
        try:
            with override_lock_timeout(connection, int(LOCK_WAIT_S * 1000)):
                change_indexes.add_to_day(connection, missing)
            created_count += 1
        except psycopg.Error as error:
            result.note_failure(missing.partition, error)
        if connection.broken or time.monotonic() > end:
            break
    return created_count
