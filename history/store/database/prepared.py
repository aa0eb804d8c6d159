"""Prepared statements on Django's connection, for the few queries that every request runs."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import psycopg
from django.db import connection
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import tuple_row

# A statement with %(name)s for each value, and the values by name. A value must always have the
# same type: otherwise the statement is prepared once more.
Values: TypeAlias = Mapping[str, object]
Statement: TypeAlias = tuple[str, Values]
FetchedRows: TypeAlias = list[tuple[Any, ...]]
_NAME: Final = re.compile(r"%\((\w+)\)s")


def fetch_rows(text: str, values: Values) -> FetchedRows:
    """Return all rows of a statement.

    Raises:
        django.db.Error: The statement failed. These are Django's errors, not psycopg's, so that
            Django closes a broken connection.
    """
    with connection.wrap_database_errors:
        return _execute(_open_cursor(), *_prepare_values(text, values))


def fetch_pipelined(statements: Sequence[Statement]) -> list[FetchedRows]:
    """Return the rows of each of these statements, sent in one round trip. See fetch_rows."""
    if len(statements) < 2:
        return [fetch_rows(*statement) for statement in statements]
    prepared = [(_open_cursor(), *_prepare_values(*statement)) for statement in statements]
    with connection.wrap_database_errors:
        try:
            with connection.connection.pipeline():
                for cursor, statement, values in prepared:
                    cursor.execute(statement, values, prepare=True)
            return [cursor.fetchall() for cursor, *_ in prepared]
        except psycopg.errors.FeatureNotSupported:  # see _execute
            if connection.connection.info.transaction_status != TransactionStatus.IDLE:
                raise
            return [_execute(*call) for call in prepared]


def _open_cursor() -> psycopg.Cursor[tuple[Any, ...]]:
    connection.ensure_connection()
    # Not connection.cursor(): Django's cursor puts the parameters into the text, so that nothing
    # is ever prepared.
    cursor = psycopg.RawCursor(connection.connection, row_factory=tuple_row)
    cursor.format = Format.BINARY
    return cursor


def _execute(
    cursor: psycopg.Cursor[tuple[Any, ...]], statement: str, values: Sequence[object]
) -> FetchedRows:
    try:
        return cursor.execute(statement, values, prepare=True).fetchall()
    except psycopg.errors.FeatureNotSupported:
        # A migration gave a column another type, so statements must be prepared again. If a
        # transaction is open, the error ends it, and psycopg prepares again after the rollback.
        if cursor.connection.info.transaction_status != TransactionStatus.IDLE:
            raise
        cursor.execute("DEALLOCATE ALL")  # psycopg forgets what it has prepared, too
        return cursor.execute(statement, values, prepare=True).fetchall()


@cache
def _number_parameters(text: str) -> tuple[str, Sequence[str]]:
    """Replace the named parameters of a statement by numbers. Also return the names in order.

    psycopg itself would search the whole text for names at each call.
    """
    names = list(dict.fromkeys(_NAME.findall(text)))
    return _NAME.sub(lambda match: f"${names.index(match[1]) + 1}", text), names


def _prepare_values(text: str, values: Values) -> tuple[str, Sequence[object]]:
    numbered, names = _number_parameters(text)
    return numbered, [values[name] for name in names]
