"""Changes to stored rows and archived files that do not go through Annals."""

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql


class Tampering(Enum):
    """A change of the table of a day."""

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
    """Change the table of a day, which must have rows, and return a function that undoes it."""
    names = {"table": sql.Identifier(partition), "copy": sql.Identifier(f"copy_of_{partition}")}
    connection.execute(sql.SQL("CREATE TABLE {copy} AS TABLE {table}").format(**names))
    connection.execute(sql.SQL(_STATEMENTS[how]).format(**names))

    def undo() -> None:
        with connection.transaction():
            connection.execute(sql.SQL("DELETE FROM {table}").format(**names))
            connection.execute(sql.SQL("INSERT INTO {table} TABLE {copy}").format(**names))
            connection.execute(sql.SQL("DROP TABLE {copy}").format(**names))

    return undo


class Damage(Enum):
    """A kind of damage to a file of the archive."""

    TRUNCATE = "truncate"
    OVERWRITE = "overwrite a byte"
    REMOVE = "remove"


def damage(path: Path, how: Damage, position: int) -> Callable[[], None]:
    """Damage a file, and return a function that undoes it.

    Args:
        position: The distance of the damaged byte from the end of the file.
    """
    before = path.read_bytes()
    place = len(before) - 1 - position % len(before)
    if how is Damage.REMOVE:
        path.unlink()
    elif how is Damage.TRUNCATE:
        path.write_bytes(before[:place])
    else:
        path.write_bytes(before[:place] + bytes([before[place] ^ 1]) + before[place + 1 :])
    return lambda: _write(path, before)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
