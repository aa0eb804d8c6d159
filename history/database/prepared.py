"""Prepared statements on Django's connection, for the few questions that every request asks."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import psycopg
from django.db import connection
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import tuple_row

# A statement with %(name)s for each value, and the values by name. Each value must have one type
# all the time, or the statement is prepared once more.
Values: TypeAlias = Mapping[str, object]
Statement: TypeAlias = tuple[str, Values]
Rows: TypeAlias = list[tuple[Any, ...]]
_NAME: Final = re.compile(r"%\((\w+)\)s")


def fetch(text: str, values: Values) -> Rows:
    """All rows of a statement. Raises Django's errors of the database, so that Django drops a
    broken connection."""
    with connection.wrap_database_errors:
        return _run(_cursor(), *_as_sent(text, values))


def together(asked: Sequence[Statement]) -> list[Rows]:
    """The rows of each of these statements, in one round trip. Otherwise as fetch()."""
    if len(asked) < 2:
        return [fetch(*each) for each in asked]
    sent = [(_cursor(), *_as_sent(*each)) for each in asked]
    with connection.wrap_database_errors:
        try:
            with connection.connection.pipeline():
                for cursor, statement, values in sent:
                    cursor.execute(statement, values, prepare=True)
            return [cursor.fetchall() for cursor, *_ in sent]
        except psycopg.errors.FeatureNotSupported:  # as in _run
            if connection.connection.info.transaction_status != TransactionStatus.IDLE:
                raise
            return [_run(*each) for each in sent]


def _cursor() -> psycopg.Cursor[tuple[Any, ...]]:
    connection.ensure_connection()
    # Not connection.cursor(): Django's cursor puts the parameters into the text, so that nothing
    # is ever prepared.
    made = psycopg.RawCursor(connection.connection, row_factory=tuple_row)
    made.format = Format.BINARY
    return made


def _run(cursor: psycopg.Cursor[tuple[Any, ...]], statement: str, values: Sequence[object]) -> Rows:
    try:
        return cursor.execute(statement, values, prepare=True).fetchall()
    except psycopg.errors.FeatureNotSupported:
        # A migration gave a column another type. In a transaction the rollback does the same.
        if cursor.connection.info.transaction_status != TransactionStatus.IDLE:
            raise
        cursor.execute("DEALLOCATE ALL")  # psycopg forgets what it has prepared, too
        return cursor.execute(statement, values, prepare=True).fetchall()


@cache
def _numbered(text: str) -> tuple[str, Sequence[str]]:
    """The text with numbers in the place of names, and the names in their order. psycopg would
    look for the names of a long text at each call."""
    names = list(dict.fromkeys(_NAME.findall(text)))
    return _NAME.sub(lambda found: f"${names.index(found[1]) + 1}", text), names


def _as_sent(text: str, values: Values) -> tuple[str, Sequence[object]]:
    numbered, names = _numbered(text)
    return numbered, [values[name] for name in names]
