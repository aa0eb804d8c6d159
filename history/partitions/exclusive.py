"""The lock of the runs: one run of `partitions` at a time in a database."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from history.base.error_text import describe
from history.daily.days import ADVISORY_SPACE
from history.database import forms, session

# The advisory locks of days are (ADVISORY_SPACE, hash); this one is of the one-number kind.
RUN_LOCK: Final = ADVISORY_SPACE << 32
OTHER_RUN: Final = "another run of `partitions` works on this database"
# For how long a run waits for a database that was restarted under it.
RECONNECT_S: Final = 60.0
_HOLDER: Final = """
SELECT pid, a.usename, a.application_name
FROM pg_locks l JOIN pg_stat_activity a USING (pid) JOIN pg_database d ON d.oid = database
WHERE locktype = 'advisory' AND d.datname = current_database()
    AND classid = %s AND objid = 0 AND objsubid = 1 AND granted
"""

log = logging.getLogger(__name__)

# The session that has the lock, of each thread's connection of Django.
_HELD: WeakKeyDictionary[BaseDatabaseWrapper, psycopg.Connection[Any]] = WeakKeyDictionary()


class NoRunLockError(RuntimeError):
    """The lock of this database cannot be had: another run holds it, or a pooler drops it."""


@contextmanager
def run_lock() -> Iterator[None]:
    """Hold the lock of the runs. An inner block frees nothing, and takes it again if its session is
    gone. Raises NoRunLockError if another session has it, and says which."""
    connection = connections["default"]
    held = _HELD.get(connection)
    if held is not None:
        if held.closed or held is not connection.connection:
            reconnect()
        yield
        return
    connection.ensure_connection()
    if (why := session.dropped(connection.connection)) is not None:
        raise NoRunLockError(why)
    if not _try_lock(connection):
        raise NoRunLockError(f"{OTHER_RUN}{_holder(connection)}")
    try:
        yield
    finally:
        _free(connection)


def reconnect() -> None:
    """Open a new connection and take the lock of the runs again."""
    connection = connections["default"]
    _end(connection)
    deadline = time.monotonic() + RECONNECT_S
    while True:
        connection.close()
        try:
            if _try_lock(connection):
                return
            error: Exception = NoRunLockError(OTHER_RUN)
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


def _holder(connection: BaseDatabaseWrapper) -> str:
    """Which session has the lock; empty if it has just ended."""
    with connection.cursor() as cursor:
        cursor.execute(_HOLDER, [RUN_LOCK >> 32])
        if (found := cursor.fetchone()) is None:
            return ""
    pid, login, application = found
    return (
        f": the session {pid} of the login {login!r} ({application!r}) has its lock. If that is no "
        "run of yours, end it as an administrator of PostgreSQL: "
        f"SELECT pg_terminate_backend({pid})"
    )


def _free(connection: BaseDatabaseWrapper) -> None:
    """Free the lock at once: by its session, or by the end of that session if somebody gave it back
    to the pool or it has an error. Whatever happens, the session counts as one without the lock."""
    held = _HELD.pop(connection, None)
    if held is None:
        return
    try:
        # Not by Django's cursor, which refuses after an error. All: it may be held twice.
        if held is connection.connection and connection.is_usable():
            held.execute("SELECT pg_advisory_unlock_all()")
            forms.announce(held)  # that is such a lock
            return
    except psycopg.Error as error:
        log.warning("the session with the lock of `partitions` is closed: %s", describe(error))
    held.close()


def _end(connection: BaseDatabaseWrapper) -> None:
    """End the session that has the lock."""
    held = _HELD.pop(connection, None)
    if held is not None:
        held.close()
