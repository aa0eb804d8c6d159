"""Changes to stored rows that do not go through Annals."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import psycopg
from psycopg import sql


class Tampering(Enum):
    """What is done to the table of a day."""

    CHANGE = "change one row"
    DELETE = "delete one row"
    FORGE = "insert a row"
    EMPTY = "delete all rows"


_FIRST = "WHERE ctid = (SELECT min(ctid) FROM {table})"
_FORGED = """jsonb_populate_record(row, '{{"version": 99}}')"""
_STATEMENTS = {
    Tampering.CHANGE: f"UPDATE {{table}} SET author = 'nobody' {_FIRST}",
    Tampering.DELETE: f"DELETE FROM {{table}} {_FIRST}",
    Tampering.FORGE: f"INSERT INTO {{table}} SELECT ({_FORGED}).* FROM {{table}} AS row {_FIRST}",
    Tampering.EMPTY: "DELETE FROM {table}",
}


def tamper(
    connection: psycopg.Connection[Any], partition: str, how: Tampering
) -> Callable[[], None]:
    """Tamper with the table of a day, which has rows. Returns what undoes it."""
    names = {"table": sql.Identifier(partition), "copy": sql.Identifier(f"copy_of_{partition}")}
    connection.execute(sql.SQL("CREATE TABLE {copy} AS TABLE {table}").format(**names))
    connection.execute(sql.SQL(_STATEMENTS[how]).format(**names))

    def undo() -> None:
        with connection.transaction():
            connection.execute(sql.SQL("DELETE FROM {table}").format(**names))
            connection.execute(sql.SQL("INSERT INTO {table} TABLE {copy}").format(**names))
            connection.execute(sql.SQL("DROP TABLE {copy}").format(**names))

    return undo
