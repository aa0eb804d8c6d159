"""Which applications have which children: from the rows of a whole day, and while they are kept."""

from collections.abc import Sequence
from datetime import date
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from history import distribution

Connection = psycopg.Connection[Any]

# The latest day counts.
_HOMES: Final = """
INSERT INTO child_home (entity, id, product_instance_id, newest_day)
SELECT DISTINCT %s, id, product_instance_id, %s::date FROM {day}
ON CONFLICT (entity, id, product_instance_id) DO UPDATE
SET newest_day = excluded.newest_day WHERE child_home.newest_day < excluded.newest_day
"""
_MOVED: Final = """
INSERT INTO child_moved (product_instance_id, entity, id, other_application)
SELECT one.product_instance_id, one.entity, one.id, other.product_instance_id
FROM child_home one JOIN child_home other
    ON other.id = one.id AND other.entity = one.entity
    AND other.product_instance_id <> one.product_instance_id
WHERE {which} ON CONFLICT DO NOTHING
"""
_OF_DAY: Final = "one.entity = %s AND one.id IN (SELECT id FROM {day})"
_REMOVE: Final[LiteralString] = "DELETE FROM child_home WHERE newest_day < %s"
_ALL_MOVED: Final[LiteralString] = """
SELECT DISTINCT id, entity, product_instance_id FROM child_moved
ORDER BY 1, 2, 3 LIMIT 1000 OFFSET %s
"""
_LEFT: Final[LiteralString] = """
SELECT id, entity, product_instance_id FROM child_home WHERE id = ANY(%s)
"""
_FORGET: Final[LiteralString] = """
DELETE FROM child_moved WHERE entity = %(entity)s AND id = %(id)s
    AND (product_instance_id = %(application)s OR other_application = %(application)s)
"""


def note_homes(connection: Connection, entity: str, day: date, source: sql.Composable) -> None:
    """Note the applications of the children in a table of a day."""
    _note(connection, sql.SQL(_HOMES).format(day=source), [entity, day])


def note_moved(connection: Connection) -> None:
    """Note the children that have versions in more than one application."""
    _note(connection, sql.SQL(_MOVED).format(which=sql.SQL("true")))


def note_moved_of(connection: Connection, entity: str, source: sql.Composable) -> None:
    """The same of those children that a table has."""
    which = sql.SQL(_OF_DAY).format(day=source)
    _note(connection, sql.SQL(_MOVED).format(which=which), [entity])


def _note(connection: Connection, statement: sql.Composed, values: Sequence[object] = ()) -> None:
    with connection.transaction():
        distribution.one_by_one(connection)
        connection.execute(statement, values)


def keep(connection: Connection, before: date) -> int:
    """Remove homes whose latest version is before this day, and what child_moved has of them.
    Returns the number of homes. `connection` is in autocommit mode."""
    if not distribution.active(connection):
        return 0
    note_moved(connection)
    removed = connection.execute(_REMOVE, [before]).rowcount
    gone: list[tuple[str, str, str]] = []
    offset = 0
    while found := connection.execute(_ALL_MOVED, [offset]).fetchall():
        offset += len(found)
        left = set(connection.execute(_LEFT, [sorted({id for id, _, _ in found})]).fetchall())
        gone += [row for row in found if row not in left]
    for id, entity, application in gone:
        connection.execute(_FORGET, {"entity": entity, "id": id, "application": application})
    return removed
