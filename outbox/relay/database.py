"""The relay's own connection: it listens, so it is none of Django's, and none of a pool."""

from __future__ import annotations

from typing import Any

import psycopg
from django.db import connections
from psycopg import sql

Connection = psycopg.Connection[tuple[Any, ...]]

# What Django sets for its own cursors.
_DJANGOS = ("cursor_factory", "context", "prepare_threshold")


def connect(alias: str) -> Connection:
    """A connection in autocommit mode to a database of settings.DATABASES."""
    given = connections[alias].get_connection_params()
    options = {name: value for name, value in given.items() if name not in _DJANGOS}
    defaults = {"application_name": "outbox relay", "connect_timeout": 5}
    connection = psycopg.connect(**{**defaults, **options}, autocommit=True)
    # Not a setting of the connection: Django sets it afterwards, too.
    role = connections[alias].settings_dict["OPTIONS"].get("assume_role")
    if role:
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
    return connection
