"""Django's backend for PostgreSQL, with the parameters of a session that this server knows, and
with another check of what the pool gives."""

from __future__ import annotations

from typing import Any

from django.db.backends.postgresql import base

from history import session
from history.database import plans
from history.database.pool import works


class DatabaseWrapper(base.DatabaseWrapper):
    def get_connection_params(self) -> dict[str, Any]:
        """As Django. Asks the server once which release it is; raises psycopg.OperationalError
        where it does not answer."""
        return session.fitted(super().get_connection_params())

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """As Django. What the pool gives works, as with CONN_HEALTH_CHECKS, but mostly without a
        question: that was a round trip of every request."""
        while True:
            connection = super().get_new_connection(conn_params)
            good = False
            try:
                if self.pool is None or works(self.pool, connection):
                    plans.fit(connection)
                    good = True
            finally:
                if not good:
                    self._give_back(connection)
            if good:
                return connection

    def _give_back(self, connection: Any) -> None:
        """To the pool, which forgets it if it does not work."""
        if self.pool is None:
            connection.close()
        else:
            self.pool.putconn(connection)
