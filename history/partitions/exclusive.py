"""The lock of the runs: one run of `partitions` at a time in a database.

The lock belongs to a session of PostgreSQL, and sessions come from a pool: a session that goes back
to the pool with the lock would keep it, and no later run would get it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from django.db import DatabaseError, ProgrammingError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from history.base.error_text import describe
from history.days import ADVISORY_SPACE
from history.entities import ENTITIES

# The advisory locks of days are (ADVISORY_SPACE, hash); this one is of the one-number kind.
RUN_LOCK: Final = ADVISORY_SPACE << 32
OTHER_RUN: Final = "another run of `partitions` works on this database"
# For how long a run waits for a database that was restarted under it.
RECONNECT_S: Final = 60.0
# Who connects again as soon as a session is ended can take the lock again.
ROUNDS: Final = 5

# Also who waits for the lock: it would be the next to have it.
_SESSIONS: Final = """
SELECT DISTINCT pid, a.usename, a.application_name, a.backend_start,
    pg_has_role(a.usesysid, c.relowner, 'USAGE'), granted
FROM pg_locks l JOIN pg_stat_activity a USING (pid) JOIN pg_database d ON d.oid = database
JOIN pg_class c ON c.oid = to_regclass(%s)
WHERE locktype = 'advisory' AND d.datname = current_database()
    AND classid = %s AND objid = 0 AND objsubid = 1
"""

log = logging.getLogger(__name__)

# The session that has the lock, of each thread's connection of Django.
_HELD: WeakKeyDictionary[BaseDatabaseWrapper, psycopg.Connection[Any]] = WeakKeyDictionary()


class AlreadyRunningError(RuntimeError):
    """Another run holds the lock of this database."""


@contextmanager
def run_lock(using: str = "default") -> Iterator[None]:
    """Hold the lock of the runs. Inside another block of it this block frees nothing, and takes the
    lock again if the session that had it is gone. Sessions whose login cannot make a run are ended
    if they have the lock, or wait for it. Raises AlreadyRunningError if another one has it, and
    says which."""
    connection = connections[using]
    held = _HELD.get(connection)
    if held is not None:
        if held.closed or held is not connection.connection:
            reconnect(using)
        yield
        return
    _take(connection)
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


def _take(connection: BaseDatabaseWrapper) -> None:
    """Take the lock, and end sessions that keep it from runs. Raises AlreadyRunningError."""
    for _ in range(ROUNDS):
        if _try_lock(connection):
            return
        if not _end_intruders(connection):
            break
    left = [each for each in _sessions(connection) if each.granted]
    raise AlreadyRunningError(f"{OTHER_RUN}{left[0].advice if left else ''}")


def _try_lock(connection: BaseDatabaseWrapper) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [RUN_LOCK])
        (got,) = cursor.fetchone() or (False,)
    if got:
        _HELD[connection] = connection.connection
    return bool(got)


@dataclass(frozen=True, slots=True)
class _Session:
    """A session that has the lock, or waits for it. since: its begin, None if it is hidden from
    this login. run: whether its login has the rights of the owner of the tables, as each run needs
    them. granted: whether it has the lock."""

    pid: int
    login: str
    application: str
    since: datetime | None
    run: bool
    granted: bool

    @property
    def advice(self) -> str:
        since = f" since {self.since:%Y-%m-%d %H:%M:%S %Z}" if self.since else ""
        what = "" if self.run else " This login never makes one: find out what it runs."
        return (
            f": the session {self.pid} of the login {self.login!r} ({self.application!r}){since} "
            f"has its lock.{what} If that is no run of yours, end it as an administrator of "
            f"PostgreSQL: SELECT pg_terminate_backend({self.pid})"
        )


def _sessions(connection: BaseDatabaseWrapper) -> list[_Session]:
    """Who has the lock or waits for it. A lock that is shared has several sessions."""
    with connection.cursor() as cursor:
        cursor.execute(_SESSIONS, [ENTITIES[0].table, RUN_LOCK >> 32])
        return [_Session(*row) for row in cursor.fetchall()]


def _end_intruders(connection: BaseDatabaseWrapper) -> bool:
    """End the sessions that have the lock without a run, or wait for it. False if a run has it, or
    this login may not end them."""
    found = _sessions(connection)
    if any(each.run and each.granted for each in found):
        return False
    ended = [_end_intruder(connection, each) for each in found if not each.run]
    return all(ended)


def _end_intruder(connection: BaseDatabaseWrapper, found: _Session) -> bool:
    """End a session; False if this login may not, or it lasts longer than five seconds."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [found.pid])
            (ended,) = cursor.fetchone() or (False,)
    except ProgrammingError:
        return False
    log.error("ended the session %d of %r: it had the lock of `partitions`", found.pid, found.login)
    return bool(ended)


def _free(connection: BaseDatabaseWrapper) -> None:
    """Free the lock at once: by its session, or by the end of that session if somebody gave it back
    to the pool or it has an error. Whatever happens, the session counts as one without the lock:
    else the next run would believe that it is inside another one, and never free its lock."""
    held = _HELD.pop(connection, None)
    if held is None:
        return
    try:
        # Not by Django's cursor, which refuses to work after an error in a transaction. All: a
        # session that had the lock before would otherwise keep it.
        if held is connection.connection and connection.is_usable():
            held.execute("SELECT pg_advisory_unlock_all()")
            return
    except psycopg.Error as error:
        log.warning("the session with the lock of `partitions` is closed: %s", describe(error))
    held.close()


def _end(connection: BaseDatabaseWrapper) -> None:
    """End the session that has the lock."""
    held = _HELD.pop(connection, None)
    if held is not None:
        held.close()
