"""What `annals migrate` does about other sessions: limits its own waits, sees who blocks it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import ceil
from threading import Event, Thread
from types import TracebackType

import psycopg
from django.db import Error
from django.db.backends.base.base import BaseDatabaseWrapper

from history import schema
from ingest.store.session import connect

LOOK_SECONDS = 0.1
_BLOCKERS = """
SELECT pid, coalesce(nullif(application_name, ''), 'unnamed'), usename
FROM pg_stat_activity WHERE pid = ANY(pg_blocking_pids(%s))
"""
_CONSUMERS = """
SELECT count(DISTINCT pid) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'annals-consume'
"""


class Blockers:
    """Context manager: looks from a connection of its own who blocks a session. `seen` has them
    afterwards, as text."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = Event()
        self._thread = Thread(target=self._look, daemon=True)
        self.seen: set[str] = set()

    def __enter__(self) -> Blockers:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        # Only what the sentence at the end says depends on it.
        with suppress(psycopg.Error), connect("annals-migrate-look") as own:
            while not self._over.wait(LOOK_SECONDS):
                for pid, name, login in own.execute(_BLOCKERS, [self._pid]).fetchall():
                    self.seen.add(f"{name} (pid {pid}, login {login})")


@contextmanager
def limited(
    connection: BaseDatabaseWrapper, lock_seconds: float, statement_seconds: float
) -> Iterator[None]:
    """In the block, no statement of the connection waits longer for a lock, or runs longer. 0:
    without a limit."""
    limits = {"lock_timeout": lock_seconds, "statement_timeout": statement_seconds}
    with connection.cursor() as cursor:
        for name, seconds in limits.items():
            # Not rounded to 0, which is no limit.
            limit = ceil(seconds * 1000)
            cursor.execute("SELECT set_config(%s, %s, false)", [name, f"{limit}ms"])
    try:
        yield
    finally:
        with suppress(Error), connection.cursor() as cursor:
            for name in limits:
                cursor.execute(f"RESET {name}")


def stops_ahead(connection: BaseDatabaseWrapper) -> list[schema.Name]:
    """Migrations to come that consumers of an earlier release do not work after. Empty for a new
    database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('django_migrations') IS NOT NULL")
        (there,) = cursor.fetchone() or (False,)
        if not there:
            return []
        cursor.execute(schema.APPLIED)
        applied = cursor.fetchall()
    if not any(app == "history" for app, _ in applied):
        return []
    return schema.stops(schema.missing(applied))


def consumers(connection: BaseDatabaseWrapper) -> int:
    """How many consumers are connected to the database."""
    with connection.cursor() as cursor:
        cursor.execute(_CONSUMERS)
        (found,) = cursor.fetchone() or (0,)
    return int(found)
