"""Gives days that are older than the indexes of changes these indexes, one at a time."""

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
    """Make the indexes that days lack, newest days first, and return their number.

    Readers and writers go on. A day whose lock cannot be had, or whose index is interrupted, is
    left to the next run, and noted in `result`. The caller holds the lock of the runs;
    `connection` is in autocommit mode.

    Args:
        seconds: After this long no index is begun.
    """
    made, end = 0, time.monotonic() + seconds
    for missing in change_indexes.find_missing(connection, [entity.table for entity in ENTITIES]):
        try:
            with override_lock_timeout(connection, int(LOCK_WAIT_S * 1000)):
                change_indexes.add_to_day(connection, missing)
            made += 1
        except psycopg.Error as error:
            result.note_failure(missing.partition, error)
        if connection.broken or time.monotonic() > end:
            break
    return made
