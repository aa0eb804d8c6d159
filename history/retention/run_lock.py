"""The run lock: only one run of `partitions` works on a database at a time."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from history.common.error_text import describe
from history.store.database import forms, session
from history.store.days.day_locks import ADVISORY_SPACE

# The advisory locks of days have two numbers (ADVISORY_SPACE, hash), this lock has one.
RUN_LOCK: Final = ADVISORY_SPACE << 32
OTHER_RUN: Final = "another run of `partitions` works on this database"
# How long a run waits for the database to return if it was restarted during the run.
RECONNECT_S: Final = 60.0
# The session that has the run lock. PostgreSQL shows the upper half of a one-number key as classid.
_FIND_HOLDER: Final = """
SELECT pid, a.usename, a.application_name
FROM pg_locks l JOIN pg_stat_activity a USING (pid) JOIN pg_database d ON d.oid = database
WHERE locktype = 'advisory' AND d.datname = current_database()
    AND classid = %(upper_half)s AND objid = 0 AND objsubid = 1 AND granted
"""

log = logging.getLogger(__name__)

# The psycopg session that has the run lock, by Django's connection. Each thread has a connection of
# its own.
_LOCK_SESSIONS: WeakKeyDictionary[BaseDatabaseWrapper, psycopg.Connection[Any]] = (
    WeakKeyDictionary()
)


class NoRunLockError(RuntimeError):
    """Raised when the run lock is not available: another run has it, or a pooler prevents it."""


@contextmanager
def hold_run_lock() -> Iterator[None]:
    """Hold the run lock during the `with` block.

    These blocks cannot be nested. If the lock is lost inside the block, `retake_lost_lock` takes it
    again.

    Raises:
        NoRunLockError: Another session has the lock. The message says which.
    """
    connection = connections["default"]
    if connection in _LOCK_SESSIONS:
        raise RuntimeError("this thread holds the run lock already")
    connection.ensure_connection()
    if (problem := session.explain_dropped_settings(connection.connection)) is not None:
        raise NoRunLockError(problem)
    if not _try_lock(connection):
        raise NoRunLockError(f"{OTHER_RUN}{_describe_holder(connection)}")
    try:
        yield
    finally:
        _free_lock(connection)


def retake_lost_lock() -> None:
    """Take the run lock again if the session that had it is gone.

    Raises:
        NoRunLockError, DatabaseError: See `reconnect`.
    """
    connection = connections["default"]
    lock_session = _LOCK_SESSIONS.get(connection)
    if lock_session is not None and (
        lock_session.closed or lock_session is not connection.connection
    ):
        reconnect()


def reconnect() -> None:
    """Open a new connection and take the run lock again.

    Raises:
        NoRunLockError: Another run has had the lock for RECONNECT_S seconds.
        DatabaseError: The database has been unavailable for that long.
    """
    connection = connections["default"]
    _end_session(connection)
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
        (is_locked,) = cursor.fetchone() or (False,)
    if is_locked:
        _LOCK_SESSIONS[connection] = connection.connection
    return bool(is_locked)


def _describe_holder(connection: BaseDatabaseWrapper) -> str:
    """Describe the session that has the run lock. Return an empty text if it has just ended."""
    with connection.cursor() as cursor:
        cursor.execute(_FIND_HOLDER, {"upper_half": RUN_LOCK >> 32})
        if (row := cursor.fetchone()) is None:
            return ""
    pid, login, application = row
    return (
        f": the session {pid} of the login {login!r} ({application!r}) has the run lock. If this "
        "session should not run, end it as an administrator of PostgreSQL: "
        f"SELECT pg_terminate_backend({pid})"
    )


def _free_lock(connection: BaseDatabaseWrapper) -> None:
    """Free the run lock at once.

    The session that has the lock unlocks it. If this session has an error or was given back to the
    pool, it is closed instead, which also frees the lock.
    """
    lock_session = _LOCK_SESSIONS.pop(connection, None)
    if lock_session is None:
        return
    try:
        # Django's cursor may refuse a statement after an error, psycopg's does not. All locks are
        # freed, because the session may hold the run lock more than once.
        if lock_session is connection.connection and connection.is_usable():
            lock_session.execute("SELECT pg_advisory_unlock_all()")
            # This has also freed the lock by which the session announces its form of data.
            forms.announce(lock_session)
            return
    except psycopg.Error as error:
        log.warning(
            "the run lock could not be freed (%s): Annals closes the session that has the lock, "
            "which frees it",
            describe(error),
        )
    lock_session.close()


def _end_session(connection: BaseDatabaseWrapper) -> None:
    """End the session that has the run lock."""
    lock_session = _LOCK_SESSIONS.pop(connection, None)
    if lock_session is not None:
        lock_session.close()
