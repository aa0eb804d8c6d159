"""Inserts rows into a distributed table."""

from collections.abc import Sequence
from typing import Any, Final, LiteralString

import psycopg

# In one statement, which has room for 65,535 parameters: no row has more than six.
MOST: Final = 5_000


def insert(
    connection: psycopg.Connection[Any],
    into: LiteralString,
    rows: Sequence[Sequence[str]],
    conflict: LiteralString,
) -> None:
    """INSERT INTO .. VALUES .. ON CONFLICT, many rows in one statement: for SELECT Citus writes a
    file for each shard first. into, conflict: what comes before and after the values."""
    for start in range(0, len(rows), MOST):
        # A value that several rows have is sent once for each column.
        places: dict[tuple[int, str], int] = {}
        values = ", ".join(
            "(" + ", ".join(
                f"${places.setdefault((number, value), len(places) + 1)}"
                for number, value in enumerate(row)
            ) + ")"
            for row in rows[start : start + MOST]
        )  # fmt: skip
        statement = f"{into} VALUES {values} {conflict}".encode()
        with psycopg.RawCursor(connection) as cursor:
            cursor.execute(statement, [value for _, value in places], prepare=False)
