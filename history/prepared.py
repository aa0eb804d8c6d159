"""Prepared statements on Django's connection, for the few questions that every request asks.

Django's own queries are built anew for each request, which costs more than their answer does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from django.db import connection
from psycopg.rows import tuple_row


def fetch(statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    """All rows. Each parameter must have one type all the time, or the statement is prepared once
    more. Raises Django's errors of the database, so that Django drops a broken connection."""
    connection.ensure_connection()
    with connection.wrap_database_errors:
        cursor = psycopg.Cursor(connection.connection, row_factory=tuple_row)
        return cursor.execute(statement, values, prepare=True, binary=True).fetchall()
