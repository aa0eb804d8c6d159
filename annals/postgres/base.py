"""The connection of Django to PostgreSQL."""

from __future__ import annotations

import select
import time
from typing import Any, Final

import psycopg
from django.db.backends.postgresql.base import DatabaseWrapper as Postgres

# A connection that worked so recently is only looked at on this side. A server that ends it says so
# to the socket; only what ends without a word, as a machine without power, needs a question.
TRUSTED_S: Final = 5.0
_CHECKED: Final = "_annals_checked"


class DatabaseWrapper(Postgres):
    """Checks what the pool gives, as CONN_HEALTH_CHECKS does, but mostly without a question: that
    was a round trip of every request."""

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        while True:
            connection = super().get_new_connection(conn_params)
            if self.pool is None or _works(self.pool, connection):
                return connection
            self.pool.putconn(connection)  # which forgets it


def _works(pool: Any, connection: psycopg.Connection[Any]) -> bool:
    now = time.monotonic()
    if now - getattr(connection, _CHECKED, -TRUSTED_S) >= TRUSTED_S or _has_news(connection):
        try:
            type(pool).check_connection(connection)
        except psycopg.Error:
            connection.close()
            return False
    setattr(connection, _CHECKED, now)
    return True


def _has_news(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server sent something, or closed its end, since the last answer."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
