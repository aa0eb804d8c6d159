"""How the partitions of a day keep their rows on disk. Only psycopg."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

import psycopg
from psycopg import sql

# The option of a partition whose rows stay whole and uncompressed if a page can hold them: to
# compress documents of some KB would be the largest part of storing them (decision 31).
WHOLE_ROWS = sql.SQL("toast_tuple_target = 8160")
LOCK_TIMEOUT = sql.SQL("SET LOCAL lock_timeout = 100")

_OTHERS = """
    SELECT space.nspname, child.relname
    FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
    JOIN pg_namespace space ON space.oid = child.relnamespace
    WHERE inhparent = ANY(%s::regclass[]) AND child.relkind = 'r' AND NOT inhdetachpending
        AND NOT coalesce(array_to_string(child.reloptions, ',') ~ 'toast_tuple_target', false)
        AND (child.relname !~ '_[0-9]{8}$' OR right(child.relname, 8) >= %s)
    ORDER BY child.relname
"""


def keep_rows_whole(
    connection: psycopg.Connection[Any], tables: Sequence[str], today: date
) -> Iterator[tuple[str, psycopg.Error | None]]:
    """Set the option in the partitions of these tables that may still get rows and say nothing of
    it: somebody made them manually, or an older release did. Rows that are there stay as they are.

    today: the current UTC day. Yields the name of each such partition, and the error if it could
    not be set, LockNotAvailable among them. Blocks no reader and no writer. `connection` is in
    autocommit mode.
    """
    found = connection.execute(_OTHERS, [list(tables), f"{today:%Y%m%d}"]).fetchall()
    for schema, name in found:
        partition = sql.Identifier(schema, name)
        command = sql.SQL("ALTER TABLE {} SET ({})").format(partition, WHOLE_ROWS)
        try:
            with connection.transaction():
                connection.execute(LOCK_TIMEOUT)
                connection.execute(command)
        except psycopg.Error as error:
            yield name, error
        else:
            yield name, None
