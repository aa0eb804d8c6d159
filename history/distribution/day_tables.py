"""A table of a day that came into being before the installation was distributed."""

from datetime import date
from typing import Any, Final

import psycopg
from psycopg import sql

from history.distribution import APPLICATION, child_home_table
from history.entities import BY_TABLE, Entity

Connection = psycopg.Connection[Any]

_KEY: Final = """
SELECT conname, array_agg(attname::text ORDER BY place) FROM pg_constraint
CROSS JOIN LATERAL unnest(conkey) WITH ORDINALITY AS of_key(number, place)
JOIN pg_attribute ON attrelid = conrelid AND attnum = number
WHERE conrelid = to_regclass(%s) AND contype = 'p' GROUP BY conname
"""
_IS_DISTRIBUTED: Final = (
    "SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = %s::regclass)"
)


def prepare(connection: Connection, table: str, day: date, child: sql.Identifier) -> None:
    """Before a detached day is attached to a distributed table: whoever attaches the days that an
    interrupted `annals distribute` left does what it would have done. In the caller's
    transaction. table: that of the versions. Does nothing to a day that is distributed."""
    entity, name = BY_TABLE[table], child.as_string(connection)
    if entity.parent is None or connection.execute(_IS_DISTRIBUTED, [name]).fetchone() == (True,):
        return
    with_application(connection, entity, child)
    child_home_table.note_homes(connection, entity.name, day, child)


def with_application(connection: Connection, entity: Entity, table: sql.Identifier) -> None:
    """Give a table the key that it needs to be distributed: that of a child has the application."""
    if entity.parent is None:
        return
    row = connection.execute(_KEY, [table.as_string(connection)]).fetchone()
    key, columns = row or (None, [])
    if APPLICATION in columns:
        return
    if key is not None:
        drop = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}")
        connection.execute(drop.format(table, sql.Identifier(key)))
    made = sql.SQL("ALTER TABLE {} ADD PRIMARY KEY (id, updated_at, version, {})")
    connection.execute(made.format(table, sql.Identifier(APPLICATION)))
