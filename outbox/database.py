"""The connections of the outbox's own processes. The relay's listens: none of Django's."""

from typing import Any

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg import sql

Connection = psycopg.Connection[tuple[Any, ...]]

# What Django sets for its own cursors.
_DJANGOS = ("cursor_factory", "context", "prepare_threshold")

# What the promises rest on, whatever the defaults of the server and the login are: psycopg writes
# the items of list parameters for the first, and locks tell nothing in a snapshot of before them.
SESSION = {
    "standard_conforming_strings": "on",
    "default_transaction_isolation": "read committed",
}


def settle(alias: str) -> None:
    """Have each of Django's connections to this database set SESSION, in this process."""

    def begun(connection: BaseDatabaseWrapper, **_: object) -> None:
        if connection.alias == alias:
            with connection.cursor() as cursor:
                for name, value in SESSION.items():
                    cursor.execute(f"SET {name} = '{value}'")

    connection_created.connect(begun, weak=False, dispatch_uid=f"outbox.{alias}")


def connect(alias: str) -> Connection:
    """A connection in autocommit mode to a database of settings.DATABASES."""
    given = connections[alias].get_connection_params()
    options = {name: value for name, value in given.items() if name not in _DJANGOS}
    # A server whose host died is noticed after 30 seconds.
    defaults = {
        "application_name": "outbox relay", "connect_timeout": 5,
        "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }  # fmt: skip
    connection = psycopg.connect(**{**defaults, **options}, autocommit=True)
    for name, value in SESSION.items():
        connection.execute(f"SET {name} = '{value}'".encode())
    # Not a setting of the connection: Django sets it afterwards, too.
    role = connections[alias].settings_dict["OPTIONS"].get("assume_role")
    if role:
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
    return connection
