"""Stores business keys in the table that search reads, each with its newest day."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
import psycopg

from history import distribution
from history.daily.window import EPOCH
from history.distribution.inserting import insert
from history.search_index.keys import KeyRow

_INTO: Final = "INSERT INTO search_key (value, name, entity, id, day)"
# One row per key. It changes once a day, so that a busy entity costs little.
_NEWEST: Final = """
    ON CONFLICT (value, name, entity, id) DO UPDATE
    SET day = excluded.day WHERE search_key.day < excluded.day
"""
_COLUMN: Final = "json_array_elements_text(%s::json)"
_UPSERT: Final = f"""
    {_INTO}
    SELECT value, name, entity, id, day::date
    FROM ROWS FROM ({", ".join([_COLUMN] * 5)}) AS u(value, name, entity, id, day)
    {_NEWEST}
"""  # noqa: S608 - constants


def upsert(connection: psycopg.Connection[Any], keys: Sequence[KeyRow]) -> None:
    """Store keys inside the caller's transaction. They are sorted."""
    dates = {day: (EPOCH + timedelta(day)).isoformat() for day in {row.day for row in keys}}
    if distribution.active(connection):
        rows = [(*row.key, dates[row.day]) for row in keys]
        insert(connection, _INTO, rows, _NEWEST)
        return
    # One JSON array per column: cheaper to build and to parse than SQL arrays.
    columns = [*zip(*(row.key for row in keys), strict=True), [dates[row.day] for row in keys]]
    connection.execute(_UPSERT, [msgspec.json.encode(column).decode() for column in columns])
