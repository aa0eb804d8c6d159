"""Stores business keys in the table that search reads, each with its newest day."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import psycopg

from history.store import distribution
from history.store.days.window import EPOCH
from history.store.json_columns import encode_columns
from history.store.search_index.keys import SearchKeyRow

_COLUMNS: Final = "value, name, entity, id, day"
# There is one row for each key. It changes only once a day, however often the document changes.
_NEWEST: Final = """
    ON CONFLICT (value, name, entity, id) DO UPDATE
    SET day = excluded.day WHERE search_key.day < excluded.day
"""
# How many rows one statement inserts. A statement can have 65,535 parameters; a row has at most 6.
_MAX_ROWS: Final = 5_000
_COLUMN: Final = "json_array_elements_text(%s::json)"
_UPSERT: Final = f"""
    INSERT INTO search_key ({_COLUMNS})
    SELECT value, name, entity, id, day::date
    FROM ROWS FROM ({", ".join([_COLUMN] * 5)}) AS u(value, name, entity, id, day)
    {_NEWEST}
"""  # noqa: S608 - constants


def upsert_keys(connection: psycopg.Connection[Any], keys: Sequence[SearchKeyRow]) -> None:
    """Store keys inside the caller's transaction. `keys` are in the order of SearchKeyId."""
    dates = {day: format_day(day) for day in {row.day for row in keys}}
    if distribution.is_distributed(connection):
        rows = [(*row.key, dates[row.day]) for row in keys]
        insert_distributed(connection, _COLUMNS, rows, _NEWEST)
        return
    columns = [*zip(*(row.key for row in keys), strict=True), [dates[row.day] for row in keys]]
    connection.execute(_UPSERT, encode_columns(columns))


def format_day(day: int) -> str:
    """Format a day, given in days since the epoch, for PostgreSQL."""
    return (EPOCH + timedelta(day)).isoformat()


def insert_distributed(
    connection: psycopg.Connection[Any],
    columns: str,
    rows: Sequence[Sequence[str]],
    on_conflict: str,
) -> None:
    """Insert rows into the distributed table search_key, many in one statement.

    Uses VALUES: for a SELECT Citus would first write a file for each shard.

    Args:
        columns: The names of the columns, as SQL.
        rows: The values of each row, in the order of `columns`.
        on_conflict: The clause of the statement for rows that exist.
    """
    for start in range(0, len(rows), _MAX_ROWS):
        # A value that several rows have is sent once for each column.
        parameters: dict[tuple[int, str], int] = {}
        tuples = []
        for row in rows[start : start + _MAX_ROWS]:
            references = ", ".join(
                f"${parameters.setdefault((number, value), len(parameters) + 1)}"
                for number, value in enumerate(row)
            )
            tuples.append(f"({references})")
        values = ", ".join(tuples)
        statement = f"INSERT INTO search_key ({columns}) VALUES {values} {on_conflict}"  # noqa: S608 - constants and numbers
        with psycopg.RawCursor(connection) as cursor:
            cursor.execute(statement.encode(), [value for _, value in parameters], prepare=False)
