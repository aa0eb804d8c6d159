"""The lock of the runs: one run of `partitions` at a time in a database.

The lock belongs to a session of PostgreSQL, and sessions come from a pool: a session that goes back
to the pool with the lock would keep it, and no later run would get it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from history.days import ADVISORY_SPACE

# The advisory locks of days are (ADVISORY_SPACE, hash); this one is of the one-number kind.
RUN_LOCK: Final = ADVISORY_SPACE << 32
OTHER_RUN: Final = "another run of `partitions` works on this database"
# For how long a run waits for a database that was restarted under it.
RECONNECT_S: Final = 60.0

# The session that has the lock, of each thread's connection of Django.
_HELD: WeakKeyDictionary[BaseDatabaseWrapper, psycopg.Connection[Any]] = WeakKeyDictionary()


class AlreadyRunningError(RuntimeError):
    """Another run holds the lock of this database."""


@contextmanager
def run_lock(using: str = "default") -> Iterator[None]:
    """Hold the lock of the runs. Inside another block of it this block frees nothing, and takes the
    lock again if the session that had it is gone. Raises AlreadyRunningError if another session
    has it."""
    connection = connections[using]
    held = _HELD.get(connection)
    if held is not None:
        if held.closed or held is not connection.connection:
            reconnect(using)
        yield
        return
    if not _try_lock(connection):
        raise AlreadyRunningError(OTHER_RUN)
    try:
        yield
    finally:
        _free(connection)


def reconnect(using: str = "default") -> None:
    """Open a new connection and take the lock of the runs again: the loss of the old one may be the
    fault of the day that was worked on, and the other days must not wait for that."""
    connection = connections[using]
    _end(connection)
    deadline = time.monotonic() + RECONNECT_S
    while True:
        connection.close()
        try:
            if _try_lock(connection):
                return
            error: Exception = AlreadyRunningError(OTHER_RUN)
        except DatabaseError as unavailable:
            error = unavailable
        if time.monotonic() > deadline:
            raise error
        time.sleep(1)


def _try_lock(connection: BaseDatabaseWrapper) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [RUN_LOCK])
        (got,) = cursor.fetchone() or (False,)
    if got:
        _HELD[connection] = connection.connection
    return bool(got)


def _free(connection: BaseDatabaseWrapper) -> None:
    """Free the lock at once: by its session, or by the end of that session if somebody gave it back
    to the pool or it has an error."""
    held = _HELD.get(connection)
    if held is connection.connection and connection.is_usable():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [RUN_LOCK])
        del _HELD[connection]
        return
    _end(connection)


def _end(connection: BaseDatabaseWrapper) -> None:
    """End the session that has the lock."""
    held = _HELD.pop(connection, None)
    if held is not None:
        held.close()
