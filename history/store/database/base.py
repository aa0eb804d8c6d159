"""Django's backend for PostgreSQL, with the settings and checks that Annals adds to sessions."""

import select
import time
from contextlib import ExitStack
from typing import Any, Final

import psycopg
from django.db.backends.postgresql import base

from history.store import distribution
from history.store.database import forms, session

_PREPARED: Final = "_annals_plans"


def prepare_session(connection: psycopg.Connection[Any]) -> None:
    """Complete the settings of a session and announce which form of data it reads.

    Does this once for each connection. On a cluster it also sets plan_cache_mode to auto, because
    PostgreSQL cannot choose the shard with a generic plan.

    Raises:
        psycopg.Error: The server refuses a setting.
        forms.NewerFormError: The database has rows in a form of a later release.
    """
    if getattr(connection, _PREPARED, False):
        return
    session.remove_time_limit(connection)
    forms.open_session(connection)
    if distribution.is_distributed(connection):
        connection.execute("SET plan_cache_mode TO auto")
    if not connection.autocommit:
        connection.commit()
    setattr(connection, _PREPARED, True)


# If a connection worked this recently, only its socket is checked, which shows most failures.
TRUSTED_S: Final = 5.0
# How long the server may take to accept a connection.
REACHED_S: Final = 2
_CHECKED: Final = "_annals_checked"


def is_working(pool: Any, connection: psycopg.Connection[Any]) -> bool:
    """Return whether a connection from this pool works. Close it if it does not."""
    now = time.monotonic()
    try:
        if now - getattr(connection, _CHECKED, -TRUSTED_S) >= TRUSTED_S or _has_input(connection):
            type(pool).check_connection(connection)
    except psycopg.Error:  # also if this process has closed it
        connection.close()
        return False
    setattr(connection, _CHECKED, now)
    return True


def _has_input(connection: psycopg.Connection[Any]) -> bool:
    """Return whether the server sent something, or closed its end, since the last answer."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


class DatabaseWrapper(base.DatabaseWrapper):
    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection that works, from the pool if there is one.

        Raises:
            psycopg.OperationalError: The server does not answer. The error is raised at once and
                says why. The pool itself would retry until its timeout, and not say why.
        """
        while True:
            if self.pool is not None and not self.pool.get_stats()["pool_available"]:
                psycopg.connect(**{**conn_params, "connect_timeout": REACHED_S}).close()
            connection = super().get_new_connection(conn_params)
            with ExitStack() as cleanup:
                cleanup.callback(self._give_back, connection)
                if self.pool is None or is_working(self.pool, connection):
                    prepare_session(connection)
                    cleanup.pop_all()
                    return connection

    def _configure_connection(self, connection: Any) -> Any:
        """Configure a session right after it was opened.

        Django calls this also for sessions that the pool opens in advance.
        """
        forms.announce(connection)
        return super()._configure_connection(connection)  # type: ignore[misc] # not in the stubs

    def _give_back(self, connection: Any) -> None:
        """Return a connection to the pool, or close it if there is no pool.

        The pool discards broken connections.
        """
        if self.pool is None:
            connection.close()
        else:
            self.pool.putconn(connection)
