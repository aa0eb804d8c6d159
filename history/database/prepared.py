"""Prepared statements on Django's connection, for the few questions that every request asks."""

from collections.abc import Sequence
from typing import Any

import psycopg
from django.db import connection
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import tuple_row


def fetch(statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    """All rows. Each parameter must have one type all the time, or the statement is prepared once
    more. Raises Django's errors of the database, so that Django drops a broken connection."""
    connection.ensure_connection()
    with connection.wrap_database_errors:
        cursor = psycopg.Cursor(connection.connection, row_factory=tuple_row)
        cursor.format = Format.BINARY
        return run(cursor, statement, values)


def run(
    cursor: psycopg.Cursor[tuple[Any, ...]], statement: str, values: Sequence[object]
) -> list[tuple[Any, ...]]:
    """All rows of a statement with this cursor. Raises psycopg.Error."""
    try:
        return cursor.execute(statement, values, prepare=True).fetchall()
    except psycopg.errors.FeatureNotSupported:
        # A migration gave a column another type. In a transaction the rollback does the same.
        if cursor.connection.info.transaction_status != TransactionStatus.IDLE:
            raise
        cursor.execute("DEALLOCATE ALL")  # psycopg forgets what it has prepared, too
        return cursor.execute(statement, values, prepare=True).fetchall()


def run_together(
    cursors: Sequence[psycopg.Cursor[tuple[Any, ...]]],
    asked: Sequence[tuple[str, Sequence[object]]],
) -> list[list[tuple[Any, ...]]]:
    """All rows of each of these statements, each with its own cursor of one connection, in one
    round trip. Raises psycopg.Error."""
    each = list(zip(cursors, asked, strict=True))
    connection = cursors[0].connection
    try:
        with connection.pipeline():
            for cursor, (statement, values) in each:
                cursor.execute(statement, values, prepare=True)
        return [cursor.fetchall() for cursor in cursors]
    except psycopg.errors.FeatureNotSupported:  # as above
        if connection.info.transaction_status != TransactionStatus.IDLE:
            raise
        return [run(cursor, statement, values) for cursor, (statement, values) in each]
