"""Django's backend for PostgreSQL, with the parameters of a session that this server knows."""

from __future__ import annotations

from typing import Any

from django.db.backends.postgresql import base

from history import session


class DatabaseWrapper(base.DatabaseWrapper):
    def get_connection_params(self) -> dict[str, Any]:
        """As Django. Asks the server once which release it is; raises psycopg.OperationalError
        where it does not answer."""
        return session.fitted(super().get_connection_params())
