"""The relay's own connection: it listens, so it is none of Django's, and none of a pool."""

from __future__ import annotations

from typing import Any

import psycopg
from django.db import connections

Connection = psycopg.Connection[tuple[Any, ...]]

# What Django sets for its own cursors.
_DJANGOS = ("cursor_factory", "context", "prepare_threshold")


def connect(alias: str) -> Connection:
    """A connection in autocommit mode to a database of settings.DATABASES."""
    given = connections[alias].get_connection_params()
    options = {name: value for name, value in given.items() if name not in _DJANGOS}
    defaults = {"application_name": "outbox relay", "connect_timeout": 5}
    return psycopg.connect(**{**defaults, **options}, autocommit=True)
