"""Which applications have which children: from the rows of a whole day."""

from __future__ import annotations

from datetime import date
from typing import Any, Final

import psycopg
from psycopg import sql

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


def note_homes(connection: Connection, entity: str, day: date, source: sql.Composable) -> None:
    """Note the applications of the children in a table of a day."""
    connection.execute(sql.SQL(_HOMES).format(day=source), [entity, day])


def note_moved(connection: Connection) -> None:
    """Note the children that have versions in more than one application."""
    connection.execute(sql.SQL(_MOVED).format(which=sql.SQL("true")))


def note_moved_of(connection: Connection, entity: str, source: sql.Composable) -> None:
    """The same of those children that a table has."""
    which = sql.SQL(_OF_DAY).format(day=source)
    connection.execute(sql.SQL(_MOVED).format(which=which), [entity])
