"""Opens and configures the database connections that the processes of the outbox use.

The relay listens for notifications, so it does not use Django's connections.
"""

from typing import Any

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg import sql

Connection = psycopg.Connection[tuple[Any, ...]]

# Parameters that Django sets for its own cursors.
_DJANGO_PARAMETERS = ("cursor_factory", "context", "prepare_threshold")

# Correctness depends on these settings, so the defaults of the server and the login do not count.
# psycopg relies on the first one for list parameters. The second one lets a statement after a lock
# see what was committed before the lock.
SESSION_SETTINGS = {
    "standard_conforming_strings": "on",
    "default_transaction_isolation": "read committed",
}


def apply_session_settings(alias: str) -> None:
    """Apply the session settings to every connection that Django opens to this database."""

    def set_session(connection: BaseDatabaseWrapper, **_: object) -> None:
        if connection.alias == alias:
            with connection.cursor() as cursor:
                for name, value in SESSION_SETTINGS.items():
                    cursor.execute(f"SET {name} = '{value}'")

    connection_created.connect(set_session, weak=False, dispatch_uid=f"outbox.{alias}")


def connect(alias: str) -> Connection:
    """Open a connection in autocommit mode to a database of settings.DATABASES."""
    parameters = connections[alias].get_connection_params()
    options = {name: value for name, value in parameters.items() if name not in _DJANGO_PARAMETERS}
    # With these, a dead host is noticed after 30 seconds.
    defaults = {
        "application_name": "outbox relay",
        "connect_timeout": 5,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }
    connection = psycopg.connect(**{**defaults, **options}, autocommit=True)
    for name, value in SESSION_SETTINGS.items():
        connection.execute(f"SET {name} = '{value}'".encode())
    # The role is not a parameter of the connection. Django, too, sets it after connecting.
    role = connections[alias].settings_dict["OPTIONS"].get("assume_role")
    if role:
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
    return connection
